"""One window of a scenario as the arrays of its cache record, in the frame of the track that is forecast.

agents      (A, 50, 6) float32  x, y, cos and sin of the heading, velocity; NaN where not seen; the target first
agent_types (A,) uint8          positions in OBJECT_TYPES
lines       (L, N, 2) float32   the map, N points a polyline, the nearest first
line_types  (L,) uint8          positions in LINE_TYPES
future      (60, 3) float32     x, y, yaw of the target; NaN where it is not known
kinematics  (5,) float64        speed, acceleration, yaw rate, velocity x and y at the present step
pose        (3,) float64        x, y, yaw of the frame in the city's
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lead_trainer.recipes.distill.benchmarks.agent_frame import AgentFrame, wrapped
from lead_trainer.recipes.distill.benchmarks.argoverse2.scenario import (
    FORECAST_STEPS,
    OBSERVED_STEPS,
    STEP_SECONDS,
    Scenario,
)
from lead_trainer.recipes.distill.benchmarks.argoverse2.vector_map import Polyline, resampled

RATE_STEPS = 10  # accelerations and yaw rates are taken over up to one second, for a tenth is noise

Array = npt.NDArray[Any]


def window_arrays(
    scenario: Scenario, lines: Sequence[Polyline], track: str, present: int, *, radius_m: float, points: int
) -> dict[str, Array]:
    """Returns the arrays above; agents and lines farther than `radius_m` are left out."""
    target = scenario.track(track)
    x, y = scenario.xy[target, present]
    frame = AgentFrame(float(x), float(y), float(scenario.heading[target, present]))
    rows = _nearby(scenario, target, present, radius_m)
    line_points, line_types = _map_lines(lines, frame, radius_m, points)
    return {
        "agents": _states(scenario, rows, present, frame),
        "agent_types": scenario.types[rows],
        "lines": line_points,
        "line_types": line_types,
        "future": _future(scenario, target, present, frame),
        "kinematics": _kinematics(scenario, target, present, frame),
        "pose": np.array([frame.x, frame.y, frame.yaw]),
    }


def _nearby(scenario: Scenario, target: int, present: int, radius_m: float) -> Array:
    """Returns the rows of the tracks seen at the present step, the target first, then by distance."""
    distance = np.linalg.norm(scenario.xy[:, present] - scenario.xy[target, present], axis=1)
    distance[target] = -1.0
    order = np.argsort(distance, kind="stable")  # not seen: NaN, last
    return np.asarray(order[distance[order] <= radius_m])


def _states(scenario: Scenario, rows: Array, present: int, frame: AgentFrame) -> Array:
    first = max(0, present + 1 - OBSERVED_STEPS)
    past = slice(first, present + 1)
    yaw = frame.yaws_in(scenario.heading[rows, past])
    known = np.concatenate(
        [
            frame.points_in(scenario.xy[rows, past]),
            np.stack([np.cos(yaw), np.sin(yaw)], axis=-1),
            frame.vectors_in(scenario.velocity[rows, past]),
        ],
        axis=-1,
    )
    states = np.full((len(rows), OBSERVED_STEPS, known.shape[-1]), np.nan, np.float32)
    states[:, OBSERVED_STEPS - known.shape[1] :] = known
    return states


def _future(scenario: Scenario, target: int, present: int, frame: AgentFrame) -> Array:
    ahead = slice(present + 1, present + 1 + FORECAST_STEPS)
    xy, yaw = frame.points_in(scenario.xy[target, ahead]), frame.yaws_in(scenario.heading[target, ahead])
    future = np.full((FORECAST_STEPS, 3), np.nan, np.float32)
    future[: len(xy)] = np.concatenate([xy, yaw[:, None]], axis=1)
    return future


def _kinematics(scenario: Scenario, target: int, present: int, frame: AgentFrame) -> Array:
    velocity = frame.vectors_in(scenario.velocity[target, present])
    speed = np.linalg.norm(velocity)
    before = np.flatnonzero(scenario.seen[target, max(0, present - RATE_STEPS) : present])
    if not len(before):
        return np.array([speed, 0.0, 0.0, *velocity])
    earlier = max(0, present - RATE_STEPS) + int(before[0])
    seconds = (present - earlier) * STEP_SECONDS
    gained = speed - np.linalg.norm(scenario.velocity[target, earlier])
    turned = wrapped(scenario.heading[target, present] - scenario.heading[target, earlier])
    return np.array([speed, gained / seconds, turned / seconds, *velocity])


def _map_lines(lines: Sequence[Polyline], frame: AgentFrame, radius_m: float, points: int) -> tuple[Array, Array]:
    sampled = np.array([frame.points_in(resampled(line.points, points)) for line in lines]).reshape(-1, points, 2)
    kinds = np.array([line.kind for line in lines], np.uint8)
    nearest = np.linalg.norm(sampled, axis=-1).min(axis=-1, initial=np.inf)
    order = np.argsort(nearest, kind="stable")
    order = order[nearest[order] <= radius_m]
    return sampled[order].astype(np.float32), kinds[order]
