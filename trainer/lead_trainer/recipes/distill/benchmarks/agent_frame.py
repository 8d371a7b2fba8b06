"""The frame of an agent: its position at the present step is the origin, x ahead, y left; metres and radians."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class AgentFrame:
    """Where the agent is in the city's or the map's frame."""

    x: float
    y: float
    yaw: float

    def points_in(self, points: Array) -> Array:
        """Returns map points (…, 2) in this frame."""
        return np.asarray((points - np.array([self.x, self.y])) @ _rotation(self.yaw))

    def vectors_in(self, vectors: Array) -> Array:
        """Returns map directions (…, 2) in this frame."""
        return np.asarray(vectors @ _rotation(self.yaw))

    def yaws_in(self, yaws: Array) -> Array:
        """Returns map headings in this frame, within -π…π."""
        return np.asarray(wrapped(yaws - self.yaw))

    def points_out(self, points: Array) -> Array:
        """Returns points (…, 2) of this frame in the map's."""
        return np.asarray(points @ _rotation(self.yaw).T + np.array([self.x, self.y]))


def wrapped(angle: Any) -> Any:
    """Returns angles within -π…π."""
    return (angle + np.pi) % (2 * np.pi) - np.pi


def _rotation(yaw: float) -> Array:
    return np.array([[np.cos(yaw), -np.sin(yaw)], [np.sin(yaw), np.cos(yaw)]])
