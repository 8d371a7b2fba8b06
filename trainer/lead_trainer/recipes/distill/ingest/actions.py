"""Positions to speeds and actions: what drives a recorded trajectory, by least squares that prefer smooth answers.

The inverse of `network.unicycle.integrate`, for labels: Alpamayo-R1 (arXiv 2511.00088) gets its action labels the same
way, by Tikhonov-regularised fits. Frame: the pose before the first step is the origin, heading along x. Float64 inside.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]

SMOOTHNESS = 1e-3  # weight of squared second differences against squared metres
STANDSTILL_M = 0.01  # a step of this length weighs as much for a curvature as the assumption that the car goes straight


def fitted_speeds(xy: Floats, yaw: Floats, dt_s: float) -> Floats:
    """Returns the speed (T,) m/s at each of T ≥ 2 poses whose positions (T, 2) the trapezoid rule then explains best.

    Each step's displacement is the mean of the two velocities, along the two headings, times dt.
    """
    design = _displacements(np.asarray(yaw, np.float64), dt_s)
    return _smooth_fit(design, np.diff(np.asarray(xy, np.float64), axis=0).T.reshape(-1))


def initial_speed(history_xy: Floats, history_yaw: Floats, dt_s: float) -> float:
    """Returns the speed in m/s at the last of P ≥ 2 past poses."""
    return float(fitted_speeds(history_xy, history_yaw, dt_s)[-1])


def fitted_actions(xy: Floats, yaw: Floats, speed: float, dt_s: float) -> Floats:
    """Returns the actions (T, 2) that lead from the origin at `speed` through positions (T, 2) and yaws (T,).

    Accelerations are differences of fitted speeds; a curvature is the turn of a step over the distance it covers, and
    smooth. A step of a car that stands covers no distance and determines no curvature: there it falls to 0 within a few
    steps (see STANDSTILL_M) instead of continuing the neighbours' trend without bound.
    """
    path = np.concatenate([np.zeros((1, 2)), np.asarray(xy, np.float64)])
    headings = np.unwrap(np.concatenate([[0.0], np.asarray(yaw, np.float64)]))
    speeds = _speeds_from(path, headings, speed, dt_s)
    acceleration = np.diff(speeds) / dt_s
    distance = speeds[:-1] * dt_s + 0.5 * acceleration * dt_s**2
    curvature = _smooth_fit(
        np.concatenate([np.diag(distance), STANDSTILL_M * np.eye(len(distance))]),
        np.concatenate([np.diff(headings), np.zeros(len(distance))]),
    )
    return np.stack([acceleration, curvature], -1)


def _speeds_from(path: Floats, headings: Floats, speed: float, dt_s: float) -> Floats:
    """Returns fitted speeds (T + 1,) whose first is given."""
    flat = _displacements(headings, dt_s)
    moved = np.diff(path, axis=0).T.reshape(-1) - flat[:, 0] * speed
    bend = _second_differences(len(path))
    rest = _solve(flat[:, 1:], moved, bend[:, 1:], -bend[:, 0] * speed)
    return np.concatenate([[speed], rest])


def _displacements(yaw: Floats, dt_s: float) -> Floats:
    """Returns the matrix (2 (T - 1), T) from speeds to displacements: x of every step, then y of every step."""
    steps, rows = len(yaw) - 1, np.arange(len(yaw) - 1)
    design = np.zeros((2, steps, len(yaw)))
    for axis, direction in enumerate((np.cos(yaw), np.sin(yaw))):
        design[axis, rows, rows] = 0.5 * dt_s * direction[:-1]
        design[axis, rows, rows + 1] = 0.5 * dt_s * direction[1:]
    return design.reshape(2 * steps, -1)


def _smooth_fit(design: Floats, target: Floats) -> Floats:
    bend = _second_differences(design.shape[1])
    return _solve(design, target, bend, np.zeros(len(bend)))


def _solve(design: Floats, target: Floats, bend: Floats, bend_target: Floats) -> Floats:
    root = np.sqrt(SMOOTHNESS)
    rows = np.concatenate([design, root * bend]), np.concatenate([target, root * bend_target])
    return np.asarray(np.linalg.lstsq(*rows, rcond=None)[0])


def _second_differences(count: int) -> Floats:
    return np.diff(np.eye(count), 2, axis=0) if count > 2 else np.zeros((0, count))
