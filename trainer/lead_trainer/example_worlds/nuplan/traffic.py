"""Who is in a town, and where at which moment: cars and bicycles in the lanes, people on the walkway, parked things.

All on a lane share its speed, which rises and falls, so that nobody meets another. People walk, stop, and walk on.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lead_trainer.example_worlds.nuplan.town import LANE_M, PARK_M, WALKWAY_M, Town
from lead_trainer.recipes.nuplan.geometry import Doubles

COLOURS = {
    "vehicle": (214, 60, 52), "pedestrian": (58, 92, 226), "bicycle": (238, 176, 40), "traffic_cone": (242, 118, 28),
    "barrier": (206, 206, 214), "czone_sign": (196, 88, 190), "generic_object": (120, 96, 70),
}  # fmt: skip
SIZES = {  # length, width, height, metres
    "vehicle": (4.7, 1.95, 1.6), "pedestrian": (0.7, 0.7, 1.75), "bicycle": (1.8, 0.65, 1.7),
    "traffic_cone": (0.4, 0.4, 0.8), "barrier": (1.6, 0.4, 1.0), "czone_sign": (0.6, 0.2, 1.2),
    "generic_object": (0.9, 0.7, 0.9),
}  # fmt: skip
STEP_S = 0.01

# x, y, yaw and speed (4,) at a moment.
Motion = Callable[[float], Doubles]


@dataclass(frozen=True)
class Actor:
    """One road user or thing."""

    category: str
    size: tuple[float, float, float]
    motion: Motion


@dataclass(frozen=True)
class Traffic:
    """A log's ego and actors."""

    ego: Motion
    acceleration: Callable[[float], float]  # of the ego, m/s²
    actors: tuple[Actor, ...]


def traffic_in(town: Town, seed: int, seconds: float, cars: int) -> Traffic:
    """Returns the traffic of a log: `cars` on each lane besides the ego, and as many others."""
    draw = np.random.default_rng([seed, 5])
    times = np.arange(0.0, seconds + STEP_S, STEP_S)
    inner, outer = (_Lane(draw, times) for _ in range(2))
    begin = draw.uniform(0, 2 * np.pi)
    places = begin + _spread(draw, cars + 1)
    actors = [_in_lane(draw, "vehicle", town, inner, town.radius, angle, 1) for angle in places[1:]]
    across = town.radius + LANE_M
    for number, angle in enumerate(draw.uniform(0, 6.28) + _spread(draw, cars)):
        actors.append(_in_lane(draw, "bicycle" if number % 3 == 2 else "vehicle", town, outer, across, angle, -1))
    for _ in range(cars):
        actors.append(_walker(draw, town, times))
    for number in range(cars):
        low, high = town.park_angles()[number % len(town.park_angles())]
        pose = (town.walkway + PARK_M / 2, draw.uniform(low + 0.1, high - 0.1), draw.choice([0.0, np.pi]))
        actors.append(_standing(draw, "vehicle", town, *pose))
    for kind in ("traffic_cone", "barrier", "czone_sign", "generic_object"):
        pose = (town.inner - draw.uniform(1.0, 2.5), draw.uniform(0, 2 * np.pi), 0.0)
        actors.append(_standing(draw, kind, town, *pose))
    return Traffic(inner.motion(town, town.radius, begin, 1), inner.acceleration, tuple(actors))


class _Lane:
    """The speed that everybody of a lane has."""

    def __init__(self, draw: np.random.Generator, times: Doubles) -> None:
        rate, phase = draw.uniform(0.3, 0.6), draw.uniform(0, 6.28)
        self._mean, self._swing, self._rate, self._phase = draw.uniform(5.0, 8.0), draw.uniform(0.5, 1.5), rate, phase
        self._times = times
        self._speeds = self._mean + self._swing * np.sin(rate * times + phase)
        self._way = np.concatenate([[0.0], np.cumsum(STEP_S * (self._speeds[1:] + self._speeds[:-1]) / 2)])

    def acceleration(self, time: float) -> float:
        """Returns the acceleration along the lane."""
        return float(self._swing * self._rate * np.cos(self._rate * time + self._phase))

    def motion(self, town: Town, radius: float, begin: float, sense: int) -> Motion:
        """Returns how somebody moves who starts at an angle and goes with (1) or against (-1) it."""

        def at(time: float) -> Doubles:
            angle = begin + sense * float(np.interp(time, self._times, self._way)) / radius
            x, y = town.place(radius, angle)
            return np.array([x, y, angle + sense * np.pi / 2, float(np.interp(time, self._times, self._speeds))])

        return at


def _spread(draw: np.random.Generator, count: int) -> Doubles:
    """Returns angles all around, at least two thirds of an equal share apart."""
    return 2 * np.pi * (np.arange(count) + draw.uniform(0, 0.33, count)) / count


def _sized(draw: np.random.Generator, kind: str) -> tuple[float, float, float]:
    length, width, height = (side * draw.uniform(0.92, 1.08) for side in SIZES[kind])
    return float(length), float(width), float(height)


def _in_lane(
    draw: np.random.Generator, kind: str, town: Town, lane: _Lane, radius: float, begin: float, sense: int
) -> Actor:
    return Actor(kind, _sized(draw, kind), lane.motion(town, radius, begin, sense))


def _standing(draw: np.random.Generator, kind: str, town: Town, radius: float, angle: float, turned: float) -> Actor:
    x, y = town.place(radius, angle)
    pose = np.array([x, y, angle + np.pi / 2 + turned, 0.0])
    return Actor(kind, _sized(draw, kind), lambda time: pose)


def _walker(draw: np.random.Generator, town: Town, times: Doubles) -> Actor:
    """Returns somebody on the walkway, who stops now and then."""
    radius, begin, sense = town.outer + draw.uniform(0.6, WALKWAY_M - 0.6), draw.uniform(0, 6.28), draw.choice([-1, 1])
    pace, rate, phase = draw.uniform(0.9, 1.6), draw.uniform(0.4, 0.8), draw.uniform(0, 6.28)
    speeds = pace * np.clip(0.5 + 1.5 * np.sin(rate * times + phase), 0.0, 1.0)
    way = np.concatenate([[0.0], np.cumsum(STEP_S * (speeds[1:] + speeds[:-1]) / 2)])

    def at(time: float) -> Doubles:
        angle = begin + sense * float(np.interp(time, times, way)) / radius
        x, y = town.place(radius, angle)
        return np.array([x, y, angle + sense * np.pi / 2, float(np.interp(time, times, speeds))])

    return Actor("pedestrian", _sized(draw, "pedestrian"), at)
