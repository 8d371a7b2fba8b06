"""The things on an example route and where each of them is at every simulation step.

Called by `episode.py` to make them, by `scene.py` and `labels.py` to draw and list them. Never moves anything itself.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from lead_trainer.example_worlds.lead.geometry import FloatArray, Pose2

Kind = Literal[
    "car", "van", "bicycle", "walker", "parked_car", "parked_mesh", "cone", "warning", "building", "tree", "pole"
]

EXTENTS: dict[str, tuple[float, float, float]] = {
    "car": (2.39, 1.08, 0.74),
    "van": (2.9, 1.15, 1.15),
    "bicycle": (0.8, 0.4, 0.85),
    "walker": (0.19, 0.19, 0.93),
    "parked_car": (2.3, 1.0, 0.75),
    "parked_mesh": (2.39, 1.08, 0.74),
    "cone": (0.17, 0.17, 0.29),
    "warning": (1.19, 1.44, 0.6),
    "tree": (0.2, 0.2, 2.6),
    "pole": (0.1, 0.1, 2.2),
}
"""Half sizes (length, width, height) in metres, as CARLA's actors have them."""

SEMANTIC_CLASS: dict[str, int] = {
    "car": 1,
    "van": 1,
    "bicycle": 9,
    "walker": 4,
    "parked_car": 1,
    "parked_mesh": 1,
    "cone": 6,
    "warning": 6,
    "building": 0,
    "tree": 0,
    "pole": 0,
}
"""TransFuser's class of the pixels an actor covers."""


@dataclass(frozen=True)
class Actor:
    """One thing with its track; arrays have one entry per simulation step, or a single one when it never moves."""

    actor_id: int
    kind: Kind
    colour: tuple[int, int, int]
    extent: tuple[float, float, float]
    xy: FloatArray
    yaw: FloatArray
    speed: FloatArray
    brake: FloatArray
    role: str = "background"

    @property
    def moves(self) -> bool:
        return len(self.yaw) > 1

    def _row(self, step: int) -> int:
        return step if self.moves else 0

    def pose(self, step: int) -> Pose2:
        """Returns the pose at a simulation step (index into the tracks)."""
        row = self._row(step)
        return Pose2(float(self.xy[row, 0]), float(self.xy[row, 1]), float(self.yaw[row]))

    def speed_at(self, step: int) -> float:
        """Returns the speed in m/s at a simulation step."""
        return float(self.speed[self._row(step)])

    def brake_at(self, step: int) -> float:
        """Returns the brake pedal, 0 or 1, at a simulation step."""
        return float(self.brake[self._row(step)])


def standing(
    actor_id: int,
    kind: Kind,
    pose: Pose2,
    colour: tuple[int, int, int],
    *,
    extent: tuple[float, float, float] | None = None,
    role: str = "background",
) -> Actor:
    """Returns an actor that never moves."""
    zero = np.zeros(1)
    return Actor(actor_id, kind, colour, extent or EXTENTS[kind], pose.xy[None], np.array([pose.yaw]), zero, zero, role)


def moving(
    actor_id: int,
    kind: Kind,
    colour: tuple[int, int, int],
    *,
    xy: FloatArray,
    yaw: FloatArray,
    speed: FloatArray,
    role: str = "background",
) -> Actor:
    """Returns an actor with a track; its brake light is on where it slows or stands."""
    slowing = np.gradient(speed) * 20.0 < -0.4
    brake = (slowing | (speed < 0.05)).astype(np.float64)
    return Actor(actor_id, kind, colour, EXTENTS[kind], xy, yaw, speed, brake, role)
