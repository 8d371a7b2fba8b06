"""Panels of the training picture: colour tables, class maps, depth, and the bird's-eye view with its overlays.

Called by `visualize.py`. Pure functions from numpy arrays to (H, W, 3) uint8 RGB; nothing here knows torch or batches.
"""

from dataclasses import dataclass, field

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.recipes.lead.config import LeadConfig

Picture = npt.NDArray[np.uint8]
Points = npt.NDArray[np.floating]
Colour = tuple[int, int, int]

SEMANTIC_NAMES = (
    "unlabeled", "vehicle", "road", "traffic light", "pedestrian", "road line", "obstacle", "special vehicle",
    "stop sign", "biker",
)  # fmt: skip
SEMANTIC_COLOURS = np.array(
    [(28, 30, 36), (31, 119, 220), (110, 84, 120), (250, 210, 40), (220, 60, 70), (240, 240, 240), (245, 140, 30),
     (200, 60, 220), (150, 10, 20), (120, 200, 90)], np.uint8,
)  # fmt: skip
BEV_NAMES = (
    "unlabeled", "road", "lane marking", "stop sign", "vehicle", "walker", "obstacle", "parking", "special vehicle",
    "biker", "green light", "red light", "red light, overhead",
)  # fmt: skip
BEV_COLOURS = np.array(
    [(28, 30, 36), (78, 80, 90), (190, 190, 186), (150, 10, 20), (31, 119, 220), (220, 60, 70), (245, 140, 30),
     (90, 170, 190), (200, 60, 220), (120, 200, 90), (40, 190, 90), (240, 40, 40), (255, 110, 110)], np.uint8,
)  # fmt: skip
NAVSIM_BEV_NAMES = (
    "unlabeled", "road", "walkway", "centre line", "static object", "vehicle", "pedestrian",
)  # fmt: skip
NAVSIM_BEV_COLOURS = np.array(
    [(28, 30, 36), (78, 80, 90), (120, 100, 80), (190, 190, 186), (245, 140, 30), (31, 119, 220), (220, 60, 70)],
    np.uint8,
)
BOX_NAMES = ("vehicle", "walker", "traffic light", "stop sign", "special", "obstacle", "parking", "biker")
BOX_COLOURS: tuple[Colour, ...] = (
    (110, 180, 255), (255, 110, 120), (255, 70, 70), (210, 40, 50), (230, 120, 250), (255, 180, 80), (140, 220, 235),
    (170, 240, 140),
)  # fmt: skip

ROUTE_COLOUR: Colour = (60, 220, 230)
WAYPOINT_COLOUR: Colour = (255, 90, 220)
TARGET_COLOUR: Colour = (255, 235, 80)
RADAR_COLOUR: Colour = (160, 255, 60)
LIDAR_COLOUR: Colour = (205, 205, 215)
BACKGROUND: Colour = (18, 19, 22)
TEXT: Colour = (232, 232, 236)
DEPTH_SHOWN_M = 50.0


@dataclass(frozen=True)
class BevOverlay:
    """What is drawn over the bird's-eye view; metres in the ego's frame, boxes in BEV pixels, None where absent."""

    boxes: Points | None = None  # (N, >= 8): x, y, half length, half width in pixels, yaw, velocity, brake, class
    route: Points | None = None  # (N, 2)
    waypoints: Points | None = None  # (N, 2)
    target_points: list[Points] = field(default_factory=list)  # each (2,)
    radar: Points | None = None  # (N, 3): x, y, speed of the detections that count


def coloured(classes: npt.NDArray[np.integer], colours: npt.NDArray[np.uint8]) -> Picture:
    """Returns a class map (H, W) in colours; a class without a colour is white."""
    known = np.clip(classes, -1, len(colours) - 1)
    table = np.concatenate([colours, np.full((1, 3), 255, np.uint8)])
    return np.asarray(table[np.where((classes < 0) | (classes >= len(colours)), len(colours), known)], np.uint8)


def depth_picture(depth_m: npt.NDArray[np.floating]) -> Picture:
    """Returns depth (H, W) in metres as colours: near is bright, 50 m and more is dark."""
    level = 255 - np.clip(depth_m / DEPTH_SHOWN_M * 255, 0, 255).astype(np.uint8)
    return np.asarray(cv2.cvtColor(cv2.applyColorMap(level, cv2.COLORMAP_INFERNO), cv2.COLOR_BGR2RGB), np.uint8)


def fitted(picture: Picture, width: int, height: int, *, smooth: bool = False) -> Picture:
    """Returns a picture at another size; shrunk smoothly, grown in hard pixels unless `smooth`."""
    shrinks = width < picture.shape[1]
    how = cv2.INTER_AREA if shrinks else (cv2.INTER_LINEAR if smooth else cv2.INTER_NEAREST)
    return np.asarray(cv2.resize(picture, (width, height), interpolation=how), np.uint8)


def titled(picture: Picture, title: str) -> Picture:
    """Returns the picture with a caption in its upper left corner."""
    result = picture.copy()
    (width, height), _ = cv2.getTextSize(title, cv2.FONT_HERSHEY_SIMPLEX, 0.5, 1)
    cv2.rectangle(result, (0, 0), (width + 12, height + 12), BACKGROUND, cv2.FILLED)
    write(result, title, (6, height + 5))
    return result


def write(picture: Picture, text: str, at: tuple[int, int], colour: Colour = TEXT, size: float = 0.5) -> None:
    """Writes one line of text into a picture; `at` is its lower left corner."""
    cv2.putText(picture, text, at, cv2.FONT_HERSHEY_SIMPLEX, size, colour, 1, cv2.LINE_AA)


def empty(width: int, height: int, text: str) -> Picture:
    """Returns a dark panel with the reason why it is empty."""
    panel = np.full((height, width, 3), BACKGROUND, np.uint8)
    write(panel, text, (12, height // 2), (140, 142, 148))
    return panel


def bev_picture(
    config: LeadConfig,
    classes: npt.NDArray[np.integer],
    colours: npt.NDArray[np.uint8],
    lidar: npt.NDArray[np.floating] | None,
    overlay: BevOverlay,
    *,
    width: int,
    height: int,
) -> Picture:
    """Returns the bird's-eye view with the car's nose up.

    `classes` is (rows = y, columns = x), one of `colours` (classes, 3) each, `lidar` the raster in [0, 1] of the same
    layout.
    """
    canvas = coloured(classes, colours)
    if lidar is not None and lidar.shape == classes.shape:
        seen = lidar > 0
        canvas[seen] = (0.45 * canvas[seen] + 0.55 * np.array(LIDAR_COLOUR)).astype(np.uint8)
    upright = fitted(np.ascontiguousarray(canvas.transpose(1, 0, 2)[::-1]), width, height)
    _draw_overlay(upright, config, overlay)
    _draw_ego(upright, config)
    return upright


def _to_pixels(picture: Picture, config: LeadConfig, metres: Points) -> npt.NDArray[np.int32]:
    """Maps ego-frame metres (N, 2) to (column, row) of an upright view."""
    column = (metres[:, 1] - config.min_y_meter) / config.lidar_height_meter * picture.shape[1]
    row = (config.max_x_meter - metres[:, 0]) / config.lidar_width_meter * picture.shape[0]
    bounded = np.clip(np.stack([column, row], axis=1), -4000, 4000)
    return np.asarray(np.round(bounded), np.int32)


def _corners(config: LeadConfig, box: Points) -> Points:
    """Returns a box row's corners (4, 2) in ego-frame metres, the front pair first."""
    x, y, length, width = (float(value) / config.pixels_per_meter for value in box[:4])
    cos, sin = np.cos(float(box[4])), np.sin(float(box[4]))
    local = np.array([(length, -width), (length, width), (-length, width), (-length, -width)])
    turned: Points = local @ np.array([(cos, sin), (-sin, cos)]) + (x + config.min_x_meter, y + config.min_y_meter)
    return turned


def _draw_overlay(picture: Picture, config: LeadConfig, overlay: BevOverlay) -> None:
    for box in overlay.boxes if overlay.boxes is not None else ():
        corners = _corners(config, box)
        colour = BOX_COLOURS[int(box[7]) % len(BOX_COLOURS)]
        cv2.polylines(picture, [_to_pixels(picture, config, corners)], True, colour, 2, cv2.LINE_AA)
        nose = np.stack([corners.mean(axis=0), corners[:2].mean(axis=0)])
        cv2.polylines(picture, [_to_pixels(picture, config, nose)], False, colour, 1, cv2.LINE_AA)
    if overlay.radar is not None and len(overlay.radar):
        for column, row in _to_pixels(picture, config, overlay.radar[:, :2]):
            cv2.drawMarker(picture, (int(column), int(row)), RADAR_COLOUR, cv2.MARKER_TILTED_CROSS, 9, 2)
    for target in overlay.target_points:
        ((column, row),) = _to_pixels(picture, config, target[None])
        cv2.drawMarker(picture, (int(column), int(row)), TARGET_COLOUR, cv2.MARKER_DIAMOND, 12, 2)
    for points, colour, radius in ((overlay.route, ROUTE_COLOUR, 3), (overlay.waypoints, WAYPOINT_COLOUR, 4)):
        if points is None:
            continue
        for column, row in _to_pixels(picture, config, points):
            cv2.circle(picture, (int(column), int(row)), radius, colour, cv2.FILLED, cv2.LINE_AA)


def _draw_ego(picture: Picture, config: LeadConfig) -> None:
    outline = np.array([(2.45, 0.0), (0.9, 1.06), (-2.45, 1.06), (-2.45, -1.06), (0.9, -1.06)])
    cv2.fillPoly(picture, [_to_pixels(picture, config, outline)], (250, 250, 250), cv2.LINE_AA)
