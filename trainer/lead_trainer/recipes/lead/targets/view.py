"""Normal or perturbated: the sensor rig as recorded, or shifted sideways and yawed; points and angles follow it.

Ego frame: x forward, y right, metres, radians. Used by every target.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[Any]


@dataclass(frozen=True)
class View:
    """A camera rig's displacement: `shift_m` to the right, then `yaw_deg` about z."""

    shift_m: float = 0.0
    yaw_deg: float = 0.0

    @property
    def rotation(self) -> npt.NDArray[np.float64]:
        """Rotation matrix (2, 2) of the rig."""
        return rotation(self.yaw_rad)

    @property
    def yaw_rad(self) -> float:
        """Yaw of the rig in radians."""
        return float(np.deg2rad(self.yaw_deg))

    def points(self, xy: Points) -> npt.NDArray[np.float64]:
        """Returns points (N, 2) of the ego frame in the frame of this view."""
        moved = np.asarray(xy) - np.array([[0.0, self.shift_m]])
        return np.asarray((self.rotation.T @ moved.T).T, np.float64)

    def angle(self, yaw: float) -> float:
        """Returns a heading of the ego frame in the frame of this view, in (-pi, pi]."""
        return wrap_angle(yaw - self.yaw_rad)


NORMAL = View()


def rotation(yaw: float) -> npt.NDArray[np.float64]:
    """Returns the (2, 2) matrix that turns by `yaw` radians."""
    cos, sin = np.cos(yaw), np.sin(yaw)
    return np.array([[cos, -sin], [sin, cos]])


def wrap_angle(angle: float) -> float:
    """Returns an angle in (-pi, pi]."""
    wrapped = angle % (2 * np.pi)
    return float(wrapped - 2 * np.pi if wrapped > np.pi else wrapped)
