"""Shadows on the ground: the hull of a thing's footprint and of its top, moved away from the sun.

Called by `route_files.py`; `camera.py` darkens what they cover. Shadows change colours only, never classes or depth.
"""

from collections.abc import Iterable

import cv2
import numpy as np

from lead_trainer.example_worlds.lead.actors import Actor
from lead_trainer.example_worlds.lead.geometry import FloatArray, Pose2
from lead_trainer.example_worlds.lead.weather import Weather

SHADOW_REACH_M = 45.0
_LOW_SUN = 0.35


def shadows(actors: Iterable[Actor], step: int, weather: Weather) -> list[FloatArray]:
    """Returns one convex ground polygon (N, 2) in the world for each thing but houses."""
    x, y, z = weather.sun
    away = -np.array([x, y]) / max(z, _LOW_SUN)
    return [_shadow(actor, actor.pose(step), away) for actor in actors if actor.kind not in ("building", "pole")]


def near(polygons: list[FloatArray], pose: Pose2) -> list[FloatArray]:
    """Returns the shadows close enough to be seen."""
    return [polygon for polygon in polygons if float(np.hypot(*(polygon[0] - pose.xy))) < SHADOW_REACH_M]


def _shadow(actor: Actor, pose: Pose2, away: FloatArray) -> FloatArray:
    if actor.kind == "tree":
        turn = np.linspace(0, 2 * np.pi, 12, endpoint=False)
        return pose.xy + 3.6 * away + 1.7 * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    length, width, height = actor.extent
    corners = pose.to_world(np.array([(length, width), (length, -width), (-length, -width), (-length, width)]))
    both = np.concatenate([corners, corners + 2 * height * 0.8 * away]).astype(np.float32)
    return np.asarray(cv2.convexHull(both)[:, 0], np.float64)
