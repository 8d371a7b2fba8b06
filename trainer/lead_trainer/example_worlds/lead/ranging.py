"""LiDAR and radar of the example world: rays against upright boxes, nearest hit wins.

Called by `sensors.py`. Solves the plane problem for every (azimuth, box) pair first,
then adds elevations where it hits.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lead_trainer.example_worlds.lead.actors import Actor
from lead_trainer.example_worlds.lead.geometry import FloatArray, Pose2, rotation2

IntArray = npt.NDArray[np.int64]

_CROWN = (1.4, 1.4, 1.7)


@dataclass(frozen=True)
class Boxes:
    """Upright boxes in the world: centre (N, 2), heading, half sizes, lowest point, velocity, and whose they are."""

    centre: FloatArray
    yaw: FloatArray
    half: FloatArray
    bottom: FloatArray
    velocity: FloatArray
    owner: IntArray

    def near(self, xy: FloatArray, reach_m: float) -> "Boxes":
        """Returns the boxes that come closer than `reach_m`."""
        gap = np.linalg.norm(self.centre - xy, axis=1) - np.linalg.norm(self.half[:, :2], axis=1)
        keep = gap < reach_m
        return Boxes(*(column[keep] for column in vars(self).values()))

    @staticmethod
    def joined(first: "Boxes", second: "Boxes") -> "Boxes":
        """Returns both lists as one."""
        pairs = zip(vars(first).values(), vars(second).values(), strict=True)
        return Boxes(*(np.concatenate(pair) for pair in pairs))


def boxes_of(actors: list[Actor], step: int) -> Boxes:
    """Returns the boxes that rays hit at a simulation step; a tree gets a second one for its crown."""
    rows = []
    for actor in actors:
        pose, speed = actor.pose(step), actor.speed_at(step)
        velocity = (speed * np.cos(pose.yaw), speed * np.sin(pose.yaw))
        rows.append((pose.x, pose.y, pose.yaw, *actor.extent, 0.0, *velocity, actor.actor_id))
        if actor.kind == "tree":
            rows.append((pose.x, pose.y, pose.yaw, *_CROWN, 2.1, 0.0, 0.0, actor.actor_id))
    table = np.array(rows, dtype=np.float64).reshape(-1, 10)
    return Boxes(table[:, :2], table[:, 2], table[:, 3:6], table[:, 6], table[:, 7:9], table[:, 9].astype(np.int64))


@dataclass(frozen=True)
class Hits:
    """Where rays ended: points (N, 3) in the frame of the rig, and the row of the box that each one hit."""

    points: FloatArray
    box: IntArray


def cast(
    boxes: Boxes,
    rig: Pose2,
    mount: tuple[float, float, float],
    azimuth: FloatArray,
    tan_elevation: FloatArray,
    reach_m: float,
) -> Hits:
    """Returns the nearest hit of every ray; azimuths are in the rig's frame, `mount` is the sensor's place in it."""
    origin = rig.to_world(np.array(mount[:2]))
    heading = azimuth + rig.yaw
    enter, leave = _crossings(boxes, origin, heading)
    ray, box = np.nonzero((enter < leave) & (enter > 0.1) & (enter < reach_m))
    if len(ray) == 0:
        return Hits(np.zeros((0, 3)), np.zeros(0, dtype=np.int64))
    near, far = enter[ray, box][:, None], leave[ray, box][:, None]
    bottom = boxes.bottom[box][:, None] - mount[2]
    top = bottom + 2 * boxes.half[box][:, 2][:, None]
    slope = tan_elevation[None]
    at_side = slope * near
    on_top = top / np.where(slope == 0.0, -1e-9, slope)
    hits_side = (at_side >= bottom) & (at_side <= top)
    hits_top = (at_side > top) & (slope < 0) & (on_top < far)
    distance = np.where(hits_side, near, np.where(hits_top, on_top, np.inf))
    nearest = np.full((len(azimuth), len(tan_elevation)), np.inf)
    np.minimum.at(nearest, ray, distance)
    pair, line = np.nonzero(np.isfinite(distance) & (distance <= nearest[ray]))
    reach, bearing = distance[pair, line], azimuth[ray[pair]]
    points = np.stack(
        [
            mount[0] + reach * np.cos(bearing),
            mount[1] + reach * np.sin(bearing),
            mount[2] + reach * tan_elevation[line],
        ],
        axis=1,
    )
    return Hits(points, box[pair])


def _crossings(boxes: Boxes, origin: FloatArray, heading: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Horizontal distances (rays, boxes) at which each ray enters and leaves each box's footprint."""
    cos, sin = np.cos(boxes.yaw), np.sin(boxes.yaw)
    gap = origin - boxes.centre
    start = np.stack([cos * gap[:, 0] + sin * gap[:, 1], -sin * gap[:, 0] + cos * gap[:, 1]])
    turn = heading[:, None] - boxes.yaw[None]
    direction = np.stack([np.cos(turn), np.sin(turn)])
    direction = np.where(np.abs(direction) < 1e-9, 1e-9, direction)
    half = boxes.half[:, :2].T[:, None]
    first = (-half - start[:, None]) / direction
    second = (half - start[:, None]) / direction
    return np.minimum(first, second).max(axis=0), np.maximum(first, second).min(axis=0)


def radial_velocity(
    hits: Hits, boxes: Boxes, rig: Pose2, mount: tuple[float, float, float], ego_velocity: FloatArray
) -> FloatArray:
    """Returns how fast the distance to every hit grows (m/s, negative while approaching), like CARLA's radar."""
    ray = (hits.points - np.array(mount))[:, :2]
    ray /= np.maximum(np.linalg.norm(ray, axis=1, keepdims=True), 1e-6)
    relative = (boxes.velocity[hits.box] - ego_velocity) @ rotation2(rig.yaw)
    result: FloatArray = np.sum(relative * ray, axis=1)
    return result
