"""Points of a sweep in the vehicle's frame, and the pillars that they fill."""

import numpy as np
import numpy.typing as npt

from lead_trainer.recipes.nuplan.geometry import Doubles, moved, transform
from lead_trainer.recipes.nuplan.ingest.log_tables import Mount
from lead_trainer.recipes.nuplan.ingest.point_cloud import Float32
from lead_trainer.recipes.nuplan.targets.grids import cells_of

INTENSITY = 255.0  # the brightest return


def in_vehicle(cloud: Float32, lidar: Mount) -> Doubles:
    """Returns the places (n, 3) of a cloud (6, n) in the vehicle's frame."""
    return moved(cloud[:3].T.astype(np.float64), transform(lidar.translation, lidar.rotation))


def points_of(cloud: Float32, lidar: Mount, range_m: float, rings: int) -> Float32:
    """Returns the points (n, 5) inside of the grid: x, y, z (m), intensity in [0, 1], ring; `rings` 0: all."""
    places = in_vehicle(cloud, lidar)
    kept = np.abs(places[:, :2]).max(axis=1, initial=0.0) < range_m
    if rings:
        kept &= cloud[4] < rings
    intensity = np.clip(cloud[3] / INTENSITY, 0.0, 1.0)
    points = np.concatenate([places, intensity[:, None], cloud[4][:, None]], axis=1)[kept]
    return np.asarray(points, np.float32)


def pillars_of(points: Doubles, range_m: float, pillar_m: float) -> npt.NDArray[np.int64]:
    """Returns how many points each pillar that is not empty holds."""
    side = round(2 * range_m / pillar_m)
    cells = cells_of(points, range_m, pillar_m)
    return np.asarray(np.unique(cells[:, 0] * side + cells[:, 1], return_counts=True)[1], np.int64)
