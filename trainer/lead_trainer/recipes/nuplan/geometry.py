"""Frames and rotations: quaternions (w, x, y, z), rigid transforms (4, 4), and places relative to a vehicle.

Labels are turned by the heading alone, in two dimensions; sensors by the whole rotation. The heading is nuplan-devkit's
(pyquaternion's yaw), which under pitch and roll differs from the direction of the nose by up to 1e-4 rad.
"""

import math

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]


def heading_of(quaternion: Doubles) -> float:
    """Returns the heading of a rotation in radians: atan2(2(wz - xy), 1 - 2(y² + z²))."""
    w, x, y, z = (float(value) for value in quaternion / np.linalg.norm(quaternion))
    return math.atan2(2 * (w * z - x * y), 1 - 2 * (y * y + z * z))


def rotation_matrix(quaternion: Doubles) -> Doubles:
    """Returns the (3, 3) matrix of a quaternion."""
    w, x, y, z = (float(value) for value in quaternion / np.linalg.norm(quaternion))
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def transform(translation: Doubles, quaternion: Doubles) -> Doubles:
    """Returns the (4, 4) transform from a frame to the one that its place and rotation are given in."""
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = rotation_matrix(quaternion), translation
    return matrix


def inverse(matrix: Doubles) -> Doubles:
    """Returns the inverse of a rigid transform."""
    turned = np.eye(4)
    turned[:3, :3] = matrix[:3, :3].T
    turned[:3, 3] = -matrix[:3, :3].T @ matrix[:3, 3]
    return turned


def moved(points: Doubles, matrix: Doubles) -> Doubles:
    """Returns points (n, 3) in the frame that a transform leads to."""
    return points @ matrix[:3, :3].T + matrix[:3, 3]


def wrapped(angle: Doubles) -> Doubles:
    """Returns angles in [-π, π)."""
    return np.asarray((angle + np.pi) % (2 * np.pi) - np.pi)


def turned(vectors: Doubles, angle: float) -> Doubles:
    """Returns vectors (..., 2) turned to the left by an angle."""
    cos, sin = math.cos(angle), math.sin(angle)
    x, y = vectors[..., 0], vectors[..., 1]
    return np.stack([cos * x - sin * y, sin * x + cos * y], axis=-1)


def relative(poses: Doubles, x: float, y: float, heading: float) -> Doubles:
    """Returns poses (..., 3) of x, y, yaw relative to another, by a rotation in two dimensions."""
    places = turned(poses[..., :2] - np.array([x, y]), -heading)
    return np.concatenate([places, wrapped(poses[..., 2:3] - heading)], axis=-1)
