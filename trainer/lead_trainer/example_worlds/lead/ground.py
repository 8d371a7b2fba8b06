"""The flat ground of an example route as rasters: what class and colour every place has, and the coarse road map.

Called by `route_files.py` once a route; `camera.py` samples the fine raster, `route_files.py` cuts the hdmap from the
coarse one.
"""

from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.example_worlds.lead.geometry import Curve, FloatArray, Pose2
from lead_trainer.example_worlds.lead.roads import (
    LANE_WIDTH_M,
    ROAD_HALF_WIDTH_M,
    SIDEWALK_WIDTH_M,
    STOP_LINE_BEFORE_CROSSING_M,
    RoadMap,
)
from lead_trainer.example_worlds.lead.scenarios import Scenario

ByteArray = npt.NDArray[np.uint8]

GRASS, SIDEWALK, ROAD, WHITE, YELLOW = range(5)
_SEMANTIC = np.array([0, 0, 2, 5, 5], dtype=np.uint8)
_COLOUR = np.array([(96, 118, 66), (152, 150, 146), (84, 85, 88), (214, 214, 210), (206, 170, 62)], dtype=np.uint8)
HDMAP_ROAD, HDMAP_SIDEWALK, HDMAP_LINE, HDMAP_BROKEN, HDMAP_STOP = 1, 2, 3, 4, 5
HDMAP_SIDE = 256
HDMAP_PIXELS_PER_M = 2.0
_MAX_RASTER_PIXELS = 20e6


@dataclass(frozen=True)
class Ground:
    """Rasters in world coordinates: pixel = (world - origin) * pixels_per_m, column = x, row = y."""

    origin: FloatArray
    pixels_per_m: float
    semantic: ByteArray
    colour: ByteArray
    far_colour: ByteArray
    far_factor: int
    hdmap: ByteArray
    hdmap_pixels_per_m: float


def paint_ground(rng: np.random.Generator, roads: RoadMap, scenario: Scenario, ego_xy: FloatArray) -> Ground:
    """Returns the rasters of everything within sight of the ego's track."""
    low, high = ego_xy.min(axis=0) - 115.0, ego_xy.max(axis=0) + 115.0
    scale = min(10.0, float(np.sqrt(_MAX_RASTER_PIXELS / np.prod(high - low))))
    surface = _paint(roads, low, high, scale)
    colour = _colour(rng, surface)
    hdmap = _paint_hdmap(roads, scenario, low, high, 4.0)
    far = cv2.resize(colour, None, fx=0.25, fy=0.25, interpolation=cv2.INTER_AREA)
    return Ground(low, scale, _SEMANTIC[surface], colour, np.asarray(far, np.uint8), 4, hdmap, 4.0)


def cut_hdmap(ground: Ground, pose: Pose2) -> ByteArray:
    """Returns the 256x256 map around a pose, 2 pixels a metre, column along the heading, row to the right."""
    half = HDMAP_SIDE / 2 / HDMAP_PIXELS_PER_M
    cos, sin = np.cos(pose.yaw), np.sin(pose.yaw)
    turn = np.array([[cos, -sin], [sin, cos]]) / HDMAP_PIXELS_PER_M
    centre_of_first = np.full(2, 0.5 / HDMAP_PIXELS_PER_M - half)
    shift = pose.xy + np.array([[cos, -sin], [sin, cos]]) @ centre_of_first - ground.origin
    to_source = np.concatenate([turn, shift[:, None]], axis=1) * ground.hdmap_pixels_per_m
    to_source[:, 2] -= 0.5
    flags = cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP
    return np.asarray(cv2.warpAffine(ground.hdmap, to_source, (HDMAP_SIDE, HDMAP_SIDE), flags=flags), np.uint8)


class _Brush:
    """Draws lines and polygons given in world metres."""

    def __init__(self, low: FloatArray, high: FloatArray, pixels_per_m: float) -> None:
        width, height = np.ceil((high - low) * pixels_per_m).astype(int)
        self.canvas: ByteArray = np.zeros((height, width), np.uint8)
        self.low, self.scale = low, pixels_per_m

    def _pixels(self, points: FloatArray) -> npt.NDArray[np.int32]:
        return np.round((points - self.low) * self.scale * 16 - 8).astype(np.int32)

    def line(self, points: FloatArray, width_m: float, value: int) -> None:
        thickness = max(1, round(width_m * self.scale))
        cv2.polylines(self.canvas, [self._pixels(points)], False, value, thickness, shift=4)

    def polygon(self, points: FloatArray, value: int) -> None:
        cv2.fillPoly(self.canvas, [self._pixels(points)], value, shift=4)

    def rectangle(self, pose: Pose2, forward: tuple[float, float], right: tuple[float, float], value: int) -> None:
        corners = [(f, r) for f, r in zip((0, 1, 1, 0), (0, 0, 1, 1), strict=True)]
        self.polygon(pose.to_world(np.array([(forward[f], right[r]) for f, r in corners])), value)

    def dashes(self, line: Curve, width_m: float, value: int) -> None:
        for arc in np.arange(0.0, line.length_m, 8.0):
            self.line(line.at(np.linspace(arc, arc + 3.5, 5))[0], width_m, value)


def _arms(roads: RoadMap) -> list[Pose2]:
    """Poses at the crossing, one facing it from each of its four arms."""
    centre = roads.crossing
    return [Pose2(centre.x, centre.y, centre.yaw + k * np.pi / 2) for k in range(4)]


def _paint(roads: RoadMap, low: FloatArray, high: FloatArray, scale: float) -> ByteArray:
    brush = _Brush(low, high, scale)
    both = (roads.main, roads.cross)
    for road in both:
        brush.line(road.points[::5], 2 * (ROAD_HALF_WIDTH_M + SIDEWALK_WIDTH_M), SIDEWALK)
    for road in both:
        brush.line(road.points[::5], 2 * ROAD_HALF_WIDTH_M, ROAD)
    for road in both:
        brush.dashes(road, 0.16, YELLOW)
        for side in (-LANE_WIDTH_M, LANE_WIDTH_M):
            brush.line(road.offset(side).points[::5], 0.15, WHITE)
    clear = STOP_LINE_BEFORE_CROSSING_M - 1.0
    for arm in _arms(roads)[:2]:
        brush.rectangle(arm, (-clear, clear), (-ROAD_HALF_WIDTH_M, ROAD_HALF_WIDTH_M), ROAD)
    for arm in _arms(roads):
        stop = -STOP_LINE_BEFORE_CROSSING_M
        brush.rectangle(arm, (stop + 0.3, stop + 0.7), (0.1, LANE_WIDTH_M), WHITE)
        for right in np.arange(-ROAD_HALF_WIDTH_M + 0.4, ROAD_HALF_WIDTH_M - 0.5, 1.0):
            brush.rectangle(arm, (-9.4, -6.9), (float(right), float(right) + 0.5), WHITE)
    return brush.canvas


def _paint_hdmap(roads: RoadMap, scenario: Scenario, low: FloatArray, high: FloatArray, scale: float) -> ByteArray:
    brush = _Brush(low, high, scale)
    both = (roads.main, roads.cross)
    for road in both:
        brush.line(road.points[::5], 2 * (ROAD_HALF_WIDTH_M + SIDEWALK_WIDTH_M), HDMAP_SIDEWALK)
    for road in both:
        brush.line(road.points[::5], 2 * ROAD_HALF_WIDTH_M, HDMAP_ROAD)
    for road in both:
        brush.line(road.points[::5], 0.75, HDMAP_BROKEN)
        for side in (-LANE_WIDTH_M, LANE_WIDTH_M):
            brush.line(road.offset(side).points[::5], 0.75, HDMAP_LINE)
    clear = STOP_LINE_BEFORE_CROSSING_M - 1.0
    for arm in _arms(roads)[:2]:
        brush.rectangle(arm, (-clear, clear), (-ROAD_HALF_WIDTH_M, ROAD_HALF_WIDTH_M), HDMAP_ROAD)
    if scenario.signal == "stop_sign":
        stop = -STOP_LINE_BEFORE_CROSSING_M
        brush.rectangle(_arms(roads)[0], (stop - 1.2, stop + 1.2), (0.3, LANE_WIDTH_M - 0.3), HDMAP_STOP)
    return brush.canvas


def _colour(rng: np.random.Generator, surface: ByteArray) -> ByteArray:
    """Colours (BGR) with grain: fine everywhere, patches a few metres wide on top."""
    height, width = surface.shape
    grain = rng.integers(-7, 8, (height, width), dtype=np.int8).astype(np.int16)
    rough = rng.normal(0.0, 9.0, (height // 24 + 2, width // 24 + 2)).astype(np.float32)
    grain += cv2.resize(rough, (width, height), interpolation=cv2.INTER_CUBIC).astype(np.int16)
    grain[surface == GRASS] *= 2
    shaded = _COLOUR[:, ::-1][surface].astype(np.int16) + grain[..., None]
    return np.asarray(np.clip(shaded, 0, 255), np.uint8)
