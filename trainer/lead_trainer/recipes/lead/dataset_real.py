"""Training samples of NavSim and Waymo-E2E from their caches: pictures, status and labels in CARLA's frame (y right).

NavSim's maps and boxes have heads of their own, so their labels carry the prefix `navsim_`; waypoints are shared. LEAD
augments neither set. One sample is a pure function of (index, config) and the cache.
"""

from collections.abc import Mapping

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.contract.samples import Cache, Sample
from lead_trainer.data.array_block import unpack_arrays
from lead_trainer.data.in_shards import RowsInShards
from lead_trainer.data.jpeg_picture import stored_picture
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.data_sources import NAVSIM, DataSource
from lead_trainer.recipes.lead.dataset import collection_of, used_part
from lead_trainer.recipes.lead.preparation import SOURCE_KEY
from lead_trainer.recipes.lead.prepare_waymo import RATED, RATED_STEPS
from lead_trainer.recipes.lead.targets.center_net import center_net_targets
from lead_trainer.recipes.lead.targets.label_classes import BoxColumn

FLIP_Y = np.array([1.0, -1.0])
COMMANDS = 4  # of both sets
UNRATED = -1.0
WAYMO_STEP = 2  # futures come at 4 Hz, waypoints are half a second apart

Arrays = Mapping[str, npt.NDArray[np.generic]]


class RealSamples(RowsInShards):
    """The frames of one cache of NavSim or Waymo-E2E; index is the position among the collection's rows."""

    def __init__(self, config: LeadConfig, cache: Cache, source: DataSource) -> None:
        refuse_other_pictures(config, cache, source)
        cv2.setNumThreads(1)  # the loader's threads share the cores already
        self._config, self._cache, self._source = config, cache, source
        self._rows = cache.rows(collection_of(config, source))

    def __len__(self) -> int:
        """Number of frames."""
        return len(self._rows.sample)

    def epoch_draw(self, epoch: int) -> npt.NDArray[np.int64]:
        """Returns every frame."""
        return np.arange(len(self), dtype=np.int64)

    def name(self, index: int) -> str:
        """Returns sequence and frame of a sample, for messages."""
        return f"{self._rows.route[index]} frame {self._rows.frame[index]:04d}"

    def load(self, index: int, epoch: int) -> Sample:
        """Returns one sample; raises BadData naming it where its future is shorter than the config asks for."""
        config, navsim = self._config, self._source is NAVSIM
        fields = self._cache.fields(int(self._rows.sample[index]))
        arrays = unpack_arrays(fields["arrays"], compressed=False)
        sample: Sample = {
            "source_dataset": self._source.number,
            "index": index,
            "sequence_id": str(self._rows.route[index]),
            "frame_number": f"{int(self._rows.frame[index]):04d}",
            # NavSim's cache has red and blue of its JPEGs swapped.
            "rgb": used_part(stored_picture(fields["image"], "BGR" if navsim else "RGB"), config),
        }
        try:
            sample |= navsim_status(arrays, config) if navsim else waymo_status(arrays, config)
            if navsim:
                sample |= navsim_labels(arrays, fields["planes"], config)
        except BadData as error:
            raise BadData(f"{self.name(index)}: {error}") from error
        return sample


def refuse_other_pictures(config: LeadConfig, cache: Cache, source: DataSource) -> None:
    """Raises BadConfig for a cache of another data set or with pictures of another size."""
    if cache.config.get(SOURCE_KEY) != source.name:
        raise BadConfig(f"this cache holds {cache.config.get(SOURCE_KEY)} data, expected {source.name}")
    for key in ("image_height", "image_width"):
        if cache.config.get(key) != getattr(config, key):
            raise BadConfig(
                f"{key}: found {getattr(config, key)}, the {source.name} cache has {cache.config.get(key)}: "
                "build a cache with the run's values, or give the run the cache's"
            )


def navsim_status(arrays: Arrays, config: LeadConfig) -> Sample:
    """Returns command, speed, acceleration and the future of a NavSim frame."""
    status = np.asarray(arrays["status"], np.float64)
    trajectory = np.asarray(arrays["trajectory"], np.float64)
    return {
        "command": status[:COMMANDS],
        "speed": float(np.hypot(*status[4:6])),
        "acceleration": float(np.hypot(*status[6:8])),
        "future_waypoints": _waypoints(trajectory[:, :2], config),
        "future_yaws": -trajectory[: config.num_way_points_prediction, 2],
    }


def waymo_status(arrays: Arrays, config: LeadConfig) -> Sample:
    """Returns command, speed, past, future and ratings of a Waymo frame; the test split has no future."""
    past = np.asarray(arrays["past"], np.float64)  # x, y, vx, vy; the last row is now
    speeds = np.hypot(past[:, 2], past[:, 3])
    sample: Sample = {"command": np.eye(COMMANDS)[int(arrays["command"].item())], "speed": float(speeds[-1])}
    count = config.num_past_samples_used
    if count:
        if len(past) <= count:
            raise BadData(f"{len(past)} past positions, expected more than num_past_samples_used = {count}")
        sample["past_positions"] = past[-count - 1 : -1, :2] * FLIP_Y
        sample["past_speeds"] = speeds[-count - 1 : -1, None]
    sample["future_waypoints"] = _waypoints(np.asarray(arrays["future"], np.float64)[::WAYMO_STEP], config)
    unrated = np.zeros((RATED, RATED_STEPS, 2)), np.full(RATED, UNRATED)
    rated, ratings = (arrays["rated"], arrays["ratings"]) if "ratings" in arrays else unrated
    return {**sample, "rated_trajectories": rated * FLIP_Y, "ratings": np.asarray(ratings)}


def navsim_labels(arrays: Arrays, planes: memoryview, config: LeadConfig) -> Sample:
    """Returns the BEV and box labels of a NavSim frame."""
    labels: Sample = {}
    if config.use_bev_semantic:
        plane = unpack_arrays(planes, compressed=True)["bev_semantic"]
        size = (config.lidar_width_pixel, config.lidar_height_pixel)
        if plane.shape[0] * size[0] != plane.shape[1] * size[1]:
            raise BadData(
                f"its BEV map is {plane.shape[0]} x {plane.shape[1]}, the window {size[1]} x {size[0]} pixels"
            )
        fits = plane.shape == size[::-1]
        labels["navsim_bev_semantic"] = plane if fits else cv2.resize(plane, size, interpolation=cv2.INTER_NEAREST)
    if config.detect_boxes:
        rows = navsim_box_rows(np.asarray(arrays["boxes"], np.float64), config)
        targets = center_net_targets(rows, config, config.navsim_num_bb_classes)
        labels |= {f"navsim_{key}": value for key, value in targets.items()}
    return labels


def navsim_box_rows(boxes: npt.NDArray[np.float64], config: LeadConfig) -> npt.NDArray[np.float32]:
    """Returns box rows (max_num_bbs, 9) on the BEV grid from x, y, heading, length, width (N, 5) with y to the left."""
    x, y = boxes[:, 0], -boxes[:, 1]
    inside = (config.min_x_meter <= x) & (x < config.max_x_meter) & (config.min_y_meter <= y) & (y < config.max_y_meter)
    kept = boxes[inside][: config.max_num_bbs]
    rows = np.zeros((config.max_num_bbs, len(BoxColumn)), np.float32)
    scale = config.pixels_per_meter
    rows[: len(kept), BoxColumn.X] = (kept[:, 0] - config.min_x_meter) * scale
    rows[: len(kept), BoxColumn.Y] = (-kept[:, 1] - config.min_y_meter) * scale
    rows[: len(kept), BoxColumn.W] = kept[:, 3] / 2 * scale
    rows[: len(kept), BoxColumn.H] = kept[:, 4] / 2 * scale
    rows[: len(kept), BoxColumn.YAW] = -kept[:, 2]
    return rows


def _waypoints(points: npt.NDArray[np.float64], config: LeadConfig) -> npt.NDArray[np.float64]:
    count = config.num_way_points_prediction
    if config.use_planning_decoder and len(points) < count:
        raise BadData(f"{len(points)} future waypoints, expected {count} (num_way_points_prediction)")
    return np.asarray(points[:count] * FLIP_Y)
