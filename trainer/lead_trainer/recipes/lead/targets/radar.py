"""Radar points as fixed-size input, and which boxes the radar detector should find."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.prepare_keys import PreparationKeys
from lead_trainer.recipes.lead.targets.label_classes import BoxClass, BoxColumn

PRIORITY = (BoxClass.SPECIAL, BoxClass.VEHICLE, BoxClass.WALKER, BoxClass.OBSTACLE, BoxClass.PARKING)
DETECTION_COLUMNS = 4  # x, y (m, ego), velocity (m/s), valid

Float32 = npt.NDArray[np.float32]


def radar_inputs(clouds: Sequence[npt.NDArray[np.float16]], config: LeadConfig) -> list[Float32]:
    """Returns (num_radar_points_per_sensor, 5) a sensor: x, y, z, velocity, sensor number; zero-padded."""
    inputs = []
    for sensor, cloud in enumerate(clouds):
        in_x = (cloud[:, 0] >= config.min_x_meter) & (cloud[:, 0] <= config.max_x_meter)
        in_y = (cloud[:, 1] >= config.min_y_meter) & (cloud[:, 1] <= config.max_y_meter)
        kept = cloud[in_x & in_y][: config.num_radar_points_per_sensor]
        points = np.zeros((config.num_radar_points_per_sensor, cloud.shape[1] + 1), np.float32)
        points[: len(kept), :-1] = kept
        points[:, -1] = sensor
        inputs.append(points)
    return inputs


def radar_detections(rows: Float32, keys: PreparationKeys) -> Float32:
    """Returns (num_radar_queries, 4) boxes seen by radar: fastest first, then by class, then by points."""
    detections = np.zeros((keys.num_radar_queries, DETECTION_COLUMNS), np.float32)
    metres = rows[:, [BoxColumn.X, BoxColumn.Y]] / np.float32(keys.pixels_per_meter)
    metres += np.array([keys.min_x_meter, keys.min_y_meter], np.float32)
    seen = np.flatnonzero(np.any(metres != 0, axis=1) & (rows[:, BoxColumn.RADAR_POINTS] > 0))
    rank = {int(label): place for place, label in enumerate(PRIORITY)}
    priority = [rank.get(int(label), len(PRIORITY)) for label in rows[seen, BoxColumn.CLASS]]
    order = np.lexsort((-rows[seen, BoxColumn.RADAR_POINTS], priority, -rows[seen, BoxColumn.VELOCITY]))
    chosen = seen[order][: keys.num_radar_queries]
    detections[: len(chosen), :2] = metres[chosen]
    detections[: len(chosen), 2] = rows[chosen, BoxColumn.VELOCITY]
    detections[: len(chosen), 3] = 1.0
    return detections
