"""Longitudinal driving at 20 Hz: the ego and the other vehicles follow their lanes by the intelligent driver model.

Called by `episode.py`. Facts about the model: Treiber, Hennecke, Helbing, Phys. Rev. E 62 (2000) 1805.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from lead_trainer.example_worlds.lead.geometry import Curve

STEP_S = 0.05
ACCELERATION = 2.4
COMFORT_BRAKING = 3.0
HARD_BRAKING = 7.0


@dataclass(frozen=True)
class Ahead:
    """Something to keep a distance from: free metres to it, its speed along the lane, and what it is."""

    gap_m: float
    speed: float
    kind: str
    actor_id: int | None = None
    standstill_m: float = 2.5


@dataclass
class Driver:
    """A vehicle on a lane: its state now and what it has done, one entry per step."""

    lane: Curve
    arc: float
    speed: float
    cruise: float
    half_length_m: float
    actor_id: int
    arcs: list[float] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)
    accelerations: list[float] = field(default_factory=list)
    reasons: list[Ahead | None] = field(default_factory=list)
    wanted: list[float] = field(default_factory=list)

    def step(self, ahead: Sequence[Ahead], *, limit: float, forced: float | None = None) -> None:
        """Records the state, then advances it by one simulation step."""
        acceleration, reason = _acceleration(self.speed, limit, ahead)
        if forced is not None:
            acceleration, reason = forced, None
        acceleration = max(acceleration, -self.speed / STEP_S)
        self.arcs.append(self.arc)
        self.speeds.append(self.speed)
        self.accelerations.append(acceleration)
        self.reasons.append(reason)
        self.wanted.append(limit)
        self.arc += self.speed * STEP_S + 0.5 * acceleration * STEP_S**2
        self.speed = max(0.0, self.speed + acceleration * STEP_S)


def _acceleration(speed: float, limit: float, ahead: Sequence[Ahead]) -> tuple[float, Ahead | None]:
    """Returns the smallest acceleration over everything ahead, and the thing that caused it when it binds."""
    free = ACCELERATION * (1.0 - (speed / max(limit, 0.1)) ** 4)
    best, reason = max(free, -COMFORT_BRAKING), None
    for thing in ahead:
        approach = speed * (speed - thing.speed) / (2.0 * np.sqrt(ACCELERATION * COMFORT_BRAKING))
        wanted = thing.standstill_m + max(0.0, 0.9 * speed + approach)
        value = free - ACCELERATION * (wanted / max(thing.gap_m, 0.3)) ** 2
        if value < best:
            best, reason = max(value, -HARD_BRAKING), thing
    return float(best), reason


def curve_speed(lane: Curve, top: float, *, sideways: float = 2.0) -> Callable[[float], float]:
    """Returns a function of the arc length: the speed that keeps the sideways acceleration of the next metres low."""
    grid = np.arange(0.0, lane.length_m, 1.0)
    allowed = np.minimum(top, np.sqrt(sideways / np.maximum(np.abs(lane.curvature(grid)), 1e-4)))
    for index in range(len(grid) - 2, -1, -1):
        allowed[index] = min(allowed[index], np.sqrt(allowed[index + 1] ** 2 + 2 * 1.8))
    return lambda arc: float(np.interp(arc, grid, allowed))


def vehicle_ahead(driver: Driver, others: Sequence[Driver]) -> list[Ahead]:
    """Returns the nearest vehicle in front on the same lane, as a list of at most one."""
    front = [other for other in others if other is not driver and other.arc > driver.arc]
    if not front:
        return []
    nearest = min(front, key=lambda other: other.arc)
    gap = nearest.arc - driver.arc - nearest.half_length_m - driver.half_length_m
    return [Ahead(gap, nearest.speed, "vehicle", nearest.actor_id)]
