"""The nuScenes map expansion: drivable areas, crossings, walkways and lane centrelines of one city.

File: `maps/expansion/<location>.json`, version 1.3; schema: nuscenes-devkit, `map_expansion`. Map frame, metres.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.contract.raw_data import SourceTree
from lead_trainer.data.raw_json import raw_json
from lead_trainer.errors import BadData
from lead_trainer.metrics.offroad import PIXELS_PER_METRE, DrivableAt

LAYERS = ("drivable_area", "ped_crossing", "walkway")
LANE_STEP_METRES = 1.0

Points = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Area:
    """One polygon with its holes, and the box around it: x from, y from, x to, y to."""

    exterior: Points
    holes: tuple[Points, ...]
    box: tuple[float, float, float, float]


@dataclass(frozen=True)
class CityMap:
    """What is drawn and asked of one city."""

    width_m: float
    height_m: float
    areas: dict[str, tuple[Area, ...]]  # by layer
    lanes: tuple[Points, ...]  # (N, 3): x, y, yaw along each centreline

    def drivable_at(self) -> DrivableAt:
        """Returns the lookup of OffRoadRate: pixels of the whole map's mask, drawn only where requested."""
        height, width = round(self.height_m * PIXELS_PER_METRE), round(self.width_m * PIXELS_PER_METRE)

        def drivable(rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
            inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
            result = np.zeros(rows.shape, np.bool_)
            if inside.any():
                top, left = int(rows[inside].min()), int(columns[inside].min())
                size = (int(rows[inside].max()) - top + 1, int(columns[inside].max()) - left + 1)
                mask = self._drivable_mask(top, left, size)
                result[inside] = mask[rows[inside] - top, columns[inside] - left] > 0
            return result

        return drivable

    def _drivable_mask(self, top: int, left: int, size: tuple[int, int]) -> npt.NDArray[np.uint8]:
        """Draws area after area; as in the kit, a hole also cuts what was drawn before."""
        mask = np.zeros(size, np.uint8)
        low = np.array([left, top])
        for area in self.areas["drivable_area"]:
            x0, y0, x1, y1 = (PIXELS_PER_METRE * value for value in area.box)
            if x1 >= left - 1 and y1 >= top - 1 and x0 <= left + size[1] and y0 <= top + size[0]:
                cv2.fillPoly(mask, [_pixels(area.exterior) - low], 1)
                if area.holes:
                    cv2.fillPoly(mask, [_pixels(hole) - low for hole in area.holes], 0)
        return mask


def read_city_map(tree: SourceTree, location: str) -> CityMap:
    """Reads one city's map, once a process; raises BadData naming the file and what it lacks."""
    city: CityMap = _read_once(tree, location)  # type: ignore[arg-type]  # a tree is hashed by identity
    return city


@lru_cache(maxsize=4)
def _read_once(tree: SourceTree, location: str) -> CityMap:
    path = map_path(location)
    try:
        document = raw_json(tree.read(path))
        if str(document["version"]) < "1.3":
            raise BadData(f"file {path} has version {document['version']}, expected 1.3 or later; fetch the newest")
        nodes = {node["token"]: (node["x"], node["y"]) for node in document["node"]}
        polygons = {polygon["token"]: polygon for polygon in document["polygon"]}
        width, height = document["canvas_edge"]
        areas = {
            layer: tuple(
                _area(polygons[token], nodes)
                for record in document[layer]
                for token in (record["polygon_tokens"] if layer == "drivable_area" else [record["polygon_token"]])
            )
            for layer in LAYERS
        }
        lanes = tuple(_centreline(paths) for paths in document["arcline_path_3"].values())
    except (KeyError, TypeError, ValueError) as error:
        raise BadData(f"file {path} is not a map expansion: {error!r}; fetch it again") from error
    return CityMap(width, height, areas, lanes)


def map_path(location: str) -> str:
    """Returns where a city's map lies in a tree."""
    return f"maps/expansion/{location}.json"


def _area(polygon: Any, nodes: dict[str, tuple[float, float]]) -> Area:
    exterior = np.array([nodes[token] for token in polygon["exterior_node_tokens"]], np.float64)
    holes = tuple(
        np.array([nodes[token] for token in hole["node_tokens"]], np.float64)
        for hole in polygon["holes"]
        if hole["node_tokens"]
    )
    (x0, y0), (x1, y1) = exterior.min(axis=0), exterior.max(axis=0)
    return Area(exterior, holes, (float(x0), float(y0), float(x1), float(y1)))


def _centreline(paths: Any) -> Points:
    """Returns poses about a metre apart along a lane's arcs; the last pose is the lane's end."""
    poses = [pose for path in paths for pose in _along_arcs(path)]
    return np.array([*poses, paths[-1]["end_pose"]], np.float64)


def _along_arcs(path: Any) -> Iterator[tuple[float, float, float]]:
    """Yields poses of one path: three arcs or straights, named by their turns (L, S, R), with one radius."""
    x, y, yaw = path["start_pose"]
    for turn, length in zip(path["shape"], path["segment_length"], strict=True):
        curvature = {"L": 1.0, "S": 0.0, "R": -1.0}[turn] / path["radius"]
        for distance in np.arange(0.0, length, LANE_STEP_METRES):
            yield _moved(x, y, yaw, curvature, float(distance))
        x, y, yaw = _moved(x, y, yaw, curvature, length)


def _moved(x: float, y: float, yaw: float, curvature: float, distance: float) -> tuple[float, float, float]:
    if curvature == 0.0:
        return x + distance * math.cos(yaw), y + distance * math.sin(yaw), yaw
    after = yaw + curvature * distance
    ahead, left = (math.sin(after) - math.sin(yaw)) / curvature, (math.cos(yaw) - math.cos(after)) / curvature
    return x + ahead, y + left, after


def _pixels(points: Points) -> npt.NDArray[np.int32]:
    return np.rint(points * PIXELS_PER_METRE).astype(np.int32)
