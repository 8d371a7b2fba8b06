"""The vector map beside a scenario or a sensor log: lane centrelines, crossings and road edges as polylines.

File: `log_map_archive_<id>.json`; fields by the user guide of argoverse/av2-api. Positions in the city's frame.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lead_trainer.data.raw_json import raw_json
from lead_trainer.errors import BadData

Points = npt.NDArray[np.float64]  # (N, 2) m

# What a polyline is; a lane inside an intersection is a kind of its own.
LINE_TYPES = ("lane_vehicle", "lane_bike", "lane_bus", "intersection_vehicle", "intersection_bike", "intersection_bus",
              "crossing", "drivable_edge")  # fmt: skip


@dataclass(frozen=True)
class Polyline:
    """One line of the map; a lane's points run in driving direction."""

    kind: int  # position in LINE_TYPES
    points: Points


def read_vector_map(data: bytes, path: str) -> tuple[Polyline, ...]:
    """Returns every polyline of a map, lanes first; raises BadData naming the file and what it lacks."""
    try:
        document = raw_json(data)
        lanes = [_lane(lane) for lane in document["lane_segments"].values()]
        crossings = [
            Polyline(LINE_TYPES.index("crossing"), _points(crossing[edge]))
            for crossing in document["pedestrian_crossings"].values()
            for edge in ("edge1", "edge2")
        ]
        areas = [
            Polyline(LINE_TYPES.index("drivable_edge"), _points([*area["area_boundary"], area["area_boundary"][0]]))
            for area in document["drivable_areas"].values()
        ]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise BadData(f"file {path} is not a vector map: {error!r}; fetch it again") from error
    return (*lanes, *crossings, *areas)


def resampled(points: Points, count: int) -> Points:
    """Returns `count` points along a line, equally far from each other, (count, 2); both ends are kept."""
    lengths = np.linalg.norm(np.diff(points, axis=0), axis=1)
    along = np.concatenate([[0.0], np.cumsum(lengths)])
    at = np.linspace(0.0, along[-1], count)
    return np.stack([np.interp(at, along, points[:, axis]) for axis in (0, 1)], axis=1)


def _lane(lane: Any) -> Polyline:
    place = "intersection" if lane["is_intersection"] else "lane"
    kind = LINE_TYPES.index(f"{place}_{lane['lane_type'].lower()}")
    if "centerline" in lane:
        return Polyline(kind, _points(lane["centerline"]))
    left, right = _points(lane["left_lane_boundary"]), _points(lane["right_lane_boundary"])
    count = max(len(left), len(right))  # sensor logs hold no centreline: halfway between the boundaries
    return Polyline(kind, (resampled(left, count) + resampled(right, count)) / 2)


def _points(points: Sequence[Any]) -> Points:
    array = np.array([[point["x"], point["y"]] for point in points], np.float64)
    if len(array) < 2 or not np.isfinite(array).all():
        raise ValueError(f"a line of {len(array)} points, or with one that is not a number")
    return array
