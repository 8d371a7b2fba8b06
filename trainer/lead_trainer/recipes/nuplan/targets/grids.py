"""Grids around the vehicle: layers of the map, boxes, and what the lidar has seen.

Cell [i, j] is true where its middle lies in it: (i + 0.5) · cell - range ahead, (j + 0.5) · cell - range to the left.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import shapely

from lead_trainer.recipes.nuplan.geometry import Doubles, turned
from lead_trainer.recipes.nuplan.ingest.city_map import CityMap

Bools = npt.NDArray[np.bool_]
Int64 = npt.NDArray[np.int64]
SECTORS = 720  # directions of the lidar, half a degree each


def middles(range_m: float, cell_m: float) -> Doubles:
    """Returns the middles of the cells (cells, cells, 2) in the vehicle's frame."""
    cells = round(2 * range_m / cell_m)
    along = (np.arange(cells) + 0.5) * cell_m - range_m
    return np.stack(np.meshgrid(along, along, indexing="ij"), axis=-1)


def covered(areas: Sequence[shapely.Geometry], places: Doubles) -> Bools:
    """Returns which places (..., 2) lie in any of the areas."""
    found = np.zeros(places.shape[:-1], np.bool_)
    for area in areas:
        shapely.prepare(area)
        left, low, right, high = area.bounds
        x, y = places[..., 0], places[..., 1]
        near = (x >= left) & (x <= right) & (y >= low) & (y <= high) & ~found
        found[near] = shapely.contains_xy(area, x[near], y[near])
    return found


def map_layer(city: CityMap, layer: str, ego: Doubles, cells: Doubles) -> Bools:
    """Returns a layer of the map on the grid `cells` (n, n, 2) of a vehicle at x, y, heading `ego`."""
    places = turned(cells, float(ego[2])) + ego[:2]
    reach = float(np.abs(cells).max()) * np.sqrt(2.0)
    return covered(city.areas_near(layer, float(ego[0]), float(ego[1]), reach), places)


def outlines(poses: Doubles, sizes: Doubles) -> "list[shapely.Polygon]":
    """Returns the outlines of boxes x, y, yaw (n, 3) of length and width (n, 2)."""
    signs = np.array([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
    corners = [0.5 * signs * size[:2] for size in sizes]
    return [
        shapely.Polygon(turned(corner, float(pose[2])) + pose[:2]) for corner, pose in zip(corners, poses, strict=True)
    ]


def occupied(poses: Doubles, sizes: Doubles, cells: Doubles) -> Bools:
    """Returns where boxes of a vehicle's frame lie on its grid."""
    return covered(outlines(poses, sizes), cells)


def cells_of(points: Doubles, range_m: float, cell_m: float) -> Int64:
    """Returns the cells (n, 2) of the points (n, ≥ 2) whose |x| and |y| are below the range."""
    inside = np.abs(points[:, :2]).max(axis=1, initial=0.0) < range_m
    return np.floor((points[inside, :2] + range_m) / cell_m).astype(np.int64)


def seen_by_lidar(points: Doubles, taken: Bools, cells: Doubles, range_m: float, cell_m: float) -> Bools:
    """Returns the cells that are known: taken, with a point, or nearer than the farthest return of their direction."""
    known = taken.copy()
    if not len(points):
        return known
    held = cells_of(points, range_m, cell_m)
    known[held[:, 0], held[:, 1]] = True
    farthest = np.zeros(SECTORS)
    np.maximum.at(farthest, _sectors(points[:, :2]), np.hypot(points[:, 0], points[:, 1]))
    return known | (np.hypot(cells[..., 0], cells[..., 1]) < farthest[_sectors(cells)])


def _sectors(places: Doubles) -> Int64:
    turn = np.arctan2(places[..., 1], places[..., 0]) / (2 * np.pi) % 1.0
    return np.minimum((turn * SECTORS).astype(np.int64), SECTORS - 1)
