"""What an agent sees, as a picture in its own frame: heading up, map layers, lanes by direction, boxes with their past.

The layout is that of nuscenes-devkit's `input_representation` (Cui et al., arXiv 1809.10732): four fifths of the
picture lie ahead, the agent is red, vehicles yellow, people orange, objects violet; what is past is darker.
"""

import colorsys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.recipes.distill.benchmarks.agent_frame import AgentFrame, wrapped
from lead_trainer.recipes.distill.benchmarks.nuscenes.map_layers import LAYERS, CityMap
from lead_trainer.recipes.distill.benchmarks.nuscenes.tables import Annotation, Tables

HISTORY_SECONDS = 2.0
AHEAD_SHARE = 0.8  # 40 m ahead and 10 m behind at the challenge's size
DARKEST = 0.4  # brightness of the oldest box
LANE_METRES = 0.5  # width of a drawn lane
LAYER_COLOURS = {"drivable_area": (255, 255, 255), "ped_crossing": (119, 136, 153), "walkway": (0, 0, 255)}
AGENT_COLOUR = (255, 0, 0)
CATEGORY_COLOURS = {"vehicle": (255, 255, 0), "movable_object": (204, 0, 204), "static_object": (204, 0, 204),
                    "human": (255, 153, 51), "animal": (255, 153, 51)}  # fmt: skip

Colour = tuple[int, int, int]
Picture = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class View:
    """A square picture around an agent."""

    frame: AgentFrame
    pixels: int
    metres_per_pixel: float

    def to_pixels(self, points: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Returns columns and rows of map points (N, 2)."""
        ahead_left = self.frame.points_in(points) / self.metres_per_pixel
        column, row = self.pixels / 2 - ahead_left[:, 1], self.pixels * AHEAD_SHARE - ahead_left[:, 0]
        return np.rint(np.stack([column, row], axis=1)).astype(np.int32)

    @property
    def reach_m(self) -> float:
        """The farthest corner."""
        return float(np.hypot(self.pixels * AHEAD_SHARE, self.pixels / 2) * self.metres_per_pixel)


def draw_raster(view: View, city: CityMap, tables: Tables, target: Annotation) -> Picture:
    """Returns an RGB picture (pixels, pixels, 3)."""
    picture = np.zeros((view.pixels, view.pixels, 3), np.uint8)
    _draw_map(picture, view, city)
    draw_agents(picture, view, tables, target)
    return picture


def draw_agents(picture: Picture, view: View, tables: Tables, target: Annotation) -> None:
    """Draws every agent of the keyframe with its past two seconds, the target last."""
    present = (tables.annotations[token] for token in tables.in_sample[target.sample])
    others = (annotation for annotation in present if annotation.instance != target.instance)
    for agent in (*others, target):
        colour = AGENT_COLOUR if agent is target else _colour(tables.category[agent.instance])
        shown = [*reversed(tables.past(agent, HISTORY_SECONDS)), agent]
        for number, annotation in enumerate(shown):
            age = (number + 1) / len(shown)
            brightness = DARKEST + (1 - DARKEST) * age if len(shown) > 1 else 1.0
            faded = tuple(int(channel * brightness) for channel in colour)
            cv2.fillPoly(picture, [view.to_pixels(corners(annotation))], faded)


def corners(annotation: Annotation) -> npt.NDArray[np.float64]:
    """Returns the corners of a box on the ground, (4, 2) in the map's frame."""
    signs = np.array([[1, 1], [1, -1], [-1, -1], [-1, 1]], np.float64)
    box = AgentFrame(annotation.x, annotation.y, annotation.yaw)
    return np.asarray(box.points_out(signs * [annotation.length / 2, annotation.width / 2]))


def _draw_map(picture: Picture, view: View, city: CityMap) -> None:
    frame, reach = view.frame, view.reach_m
    for layer in LAYERS:
        for area in city.areas[layer]:
            x0, y0, x1, y1 = area.box
            if x0 <= frame.x + reach and x1 >= frame.x - reach and y0 <= frame.y + reach and y1 >= frame.y - reach:
                outlines = [view.to_pixels(outline) for outline in (area.exterior, *area.holes)]
                cv2.fillPoly(picture, outlines, LAYER_COLOURS[layer])
    thickness = max(1, round(LANE_METRES / view.metres_per_pixel))
    for start, end, yaw in _lane_pieces(city, frame, reach):
        pixels = view.to_pixels(np.array([start, end]))
        cv2.line(picture, pixels[0].tolist(), pixels[1].tolist(), _direction_colour(frame.yaw, yaw), thickness)


def _lane_pieces(city: CityMap, frame: AgentFrame, reach: float) -> Iterator[tuple[Any, Any, float]]:
    for lane in city.lanes:
        near = np.abs(lane[:, :2] - [frame.x, frame.y]).max(axis=1) <= reach
        for number in np.flatnonzero(near[:-1]):
            yield lane[number, :2], lane[number + 1, :2], float(lane[number, 2])


def _direction_colour(agent_yaw: float, lane_yaw: float) -> Colour:
    """Returns a hue for the angle between agent and lane; lanes along the agent's heading are cyan, against it red."""
    hue = (float(wrapped(agent_yaw - lane_yaw)) + np.pi) / (2 * np.pi)
    red, green, blue = colorsys.hsv_to_rgb(hue, 1.0, 1.0)
    return int(255 * red), int(255 * green), int(255 * blue)


def _colour(category: str) -> Colour:
    return CATEGORY_COLOURS.get(category.split(".")[0], CATEGORY_COLOURS["movable_object"])
