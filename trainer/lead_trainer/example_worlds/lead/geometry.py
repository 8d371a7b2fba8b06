"""Plane and box geometry of the example world: rotations, lanes as arc-length curves, oriented boxes.

Called by every other file here. World and ego frame are CARLA's: x forward, y right, z up, metres; a yaw turns x
towards y.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def rotation2(yaw: float) -> FloatArray:
    """Returns the 2x2 matrix that turns ego coordinates into world coordinates for a heading `yaw`."""
    cos, sin = np.cos(yaw), np.sin(yaw)
    return np.array([[cos, -sin], [sin, cos]])


def wrap_angle(angle: npt.ArrayLike) -> FloatArray:
    """Returns the angle in (-pi, pi]."""
    wrapped: FloatArray = -((-np.asarray(angle, dtype=np.float64) + np.pi) % (2 * np.pi) - np.pi)
    return wrapped


@dataclass(frozen=True)
class Pose2:
    """A position in the ground plane and a heading."""

    x: float
    y: float
    yaw: float

    @property
    def xy(self) -> FloatArray:
        return np.array([self.x, self.y])

    def to_local(self, points: FloatArray) -> FloatArray:
        """Returns world points (..., 2 or 3) in this pose's frame."""
        local = points.astype(np.float64, copy=True)
        local[..., :2] = (points[..., :2] - self.xy) @ rotation2(self.yaw)
        return local

    def to_world(self, points: FloatArray) -> FloatArray:
        """Returns local points (..., 2 or 3) in the world frame."""
        world = points.astype(np.float64, copy=True)
        world[..., :2] = points[..., :2] @ rotation2(self.yaw).T + self.xy
        return world

    def shifted(self, sideways_m: float, turn_rad: float) -> "Pose2":
        """Returns the pose of a rig moved `sideways_m` to the right and then turned."""
        offset = rotation2(self.yaw) @ np.array([0.0, sideways_m])
        return Pose2(self.x + float(offset[0]), self.y + float(offset[1]), self.yaw + turn_rad)


@dataclass(frozen=True)
class Curve:
    """A line in the plane, sampled densely and read by arc length (extrapolated straight at both ends)."""

    points: FloatArray
    arc: FloatArray
    yaw: FloatArray

    @classmethod
    def through(cls, points: FloatArray, spacing_m: float = 0.1) -> "Curve":
        """Returns the curve through `points` (N, 2), resampled to `spacing_m`."""
        keep = np.concatenate(([True], np.linalg.norm(np.diff(points, axis=0), axis=1) > 1e-9))
        points = points[keep]
        arc = np.concatenate(([0.0], np.cumsum(np.linalg.norm(np.diff(points, axis=0), axis=1))))
        even = np.arange(0.0, arc[-1], spacing_m)
        dense = np.stack([np.interp(even, arc, points[:, 0]), np.interp(even, arc, points[:, 1])], axis=1)
        tangent = np.gradient(dense, axis=0)
        return cls(dense, even, np.unwrap(np.arctan2(tangent[:, 1], tangent[:, 0])))

    @property
    def length_m(self) -> float:
        return float(self.arc[-1])

    def at(self, arc: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Returns points (..., 2) and headings (...) at the given arc lengths."""
        wanted = np.asarray(arc, dtype=np.float64)
        inside = np.clip(wanted, 0.0, self.arc[-1])
        yaw = np.interp(inside, self.arc, self.yaw)
        xy = np.stack([np.interp(inside, self.arc, self.points[:, k]) for k in (0, 1)], axis=-1)
        beyond = (wanted - inside)[..., None]
        return xy + beyond * np.stack([np.cos(yaw), np.sin(yaw)], axis=-1), yaw

    def pose(self, arc: float) -> Pose2:
        """Returns the pose at one arc length."""
        xy, yaw = self.at(arc)
        return Pose2(float(xy[0]), float(xy[1]), float(yaw))

    def curvature(self, arc: npt.ArrayLike, reach_m: float = 2.0) -> FloatArray:
        """Returns the signed curvature (1/m, positive to the right) averaged over `2 * reach_m`."""
        wanted = np.asarray(arc, dtype=np.float64)
        result: FloatArray = (self.at(wanted + reach_m)[1] - self.at(wanted - reach_m)[1]) / (2 * reach_m)
        return result

    def nearest_arc(self, xy: FloatArray) -> float:
        """Returns the arc length of the sample nearest to a point."""
        return float(self.arc[int(np.argmin(np.sum((self.points - xy) ** 2, axis=1)))])

    def offset(self, right_m: npt.ArrayLike) -> "Curve":
        """Returns the curve moved sideways, by one distance or one per sample."""
        right = np.stack([-np.sin(self.yaw), np.cos(self.yaw)], axis=1)
        moved = self.points + right * np.broadcast_to(np.asarray(right_m, dtype=np.float64), self.arc.shape)[:, None]
        return Curve.through(moved)

    def reversed(self) -> "Curve":
        """Returns the same line driven the other way."""
        return Curve.through(self.points[::-1])


def bezier(start: Pose2, end: Pose2, pull: float = 0.55) -> FloatArray:
    """Returns points (40, 2) of a smooth turn that leaves `start` and reaches `end` along their headings."""
    reach = pull * float(np.linalg.norm(end.xy - start.xy))
    first = start.xy + reach * np.array([np.cos(start.yaw), np.sin(start.yaw)])
    second = end.xy - reach * np.array([np.cos(end.yaw), np.sin(end.yaw)])
    t = np.linspace(0.0, 1.0, 40)[:, None]
    curve: FloatArray = (1 - t) ** 3 * start.xy + 3 * t * (1 - t) ** 2 * first + 3 * t**2 * (1 - t) * second
    return curve + t**3 * end.xy
