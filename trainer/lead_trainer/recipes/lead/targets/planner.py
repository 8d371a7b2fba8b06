"""Targets and inputs of the planner: route, waypoints, target points, commands, in the frame of one view.

Called when a sample is loaded, on the columnar metas.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lead_trainer.recipes.lead.targets.view import View, rotation, wrap_angle

Float64 = npt.NDArray[np.float64]

FIRST_ROUTE_POINT_M = 2.5
ROUTE_SPACING_M = 1.0
COMMANDS = 6
NAVSIM_COMMANDS = (0, 2, 1, 1, 0, 2)  # left, right, straight, follow, change left, change right -> left/straight/right
FOLLOW_LANE = 4  # CARLA's command for "nothing special"


def route_points(path: npt.NDArray[Any], view: View, points: int, smooth: bool) -> Float64:
    """Returns the route in this view: resampled to `points` points 1 m apart from 2.5 m on, or as stored."""
    moved = view.points(path[:points])
    if not smooth:
        return moved
    _, first = np.unique(moved, axis=0, return_index=True)
    return resample_path(moved[np.sort(first)], points)


def resample_path(path: Float64, points: int) -> Float64:
    """Walks along a path in steps of one metre, one output for each input point, as LEAD does.

    Step i goes from the last output towards input i, so a path whose own spacing is far from 1 m is not reproduced.
    Beyond the path's end the last segment's line is followed.
    """
    here, before, outputs = np.zeros(2), np.zeros(2), []
    for index in range(points):
        step = ROUTE_SPACING_M if index else FIRST_ROUTE_POINT_M
        if index < len(path):
            towards = path[index]
            ahead = _unit(towards - here)
            backwards = float(np.dot(ahead, towards - before)) < 0
            here = here + (-step if backwards else step) * ahead
            before = towards
        else:
            here = _on_line(here, path[-2] if len(path) > 1 else np.zeros(2), path[-1], step)
        outputs.append(here)
    return np.array(outputs)


def _unit(vector: Float64) -> Float64:
    length = float(np.hypot(vector[0], vector[1]))
    return vector / length if length > 0 else np.array([1.0, 0.0])


def _on_line(here: Float64, start: Float64, end: Float64, step: float) -> Float64:
    """Returns the forward point of a line at distance `step`; where the line is further away, goes along it."""
    along = _unit(end - start)
    foot = start + np.dot(here - start, along) * along
    left = step**2 - float(np.sum((here - foot) ** 2))
    return foot + np.sqrt(left) * along if left >= 0 else here + step * along


def mean_bearing(points: Float64) -> float:
    """Returns the mean absolute bearing of points in radians: LEAD's `route_labels_curvature`."""
    return float(np.mean(np.abs(np.arctan2(points[:, 1], points[:, 0]))))


def waypoint_indices(count: int, spacing: int) -> list[int]:
    """Returns the simulator steps of the waypoints: spacing, 2 * spacing, ..."""
    return [spacing * (number + 1) for number in range(count)]


def future_headings(yaws: npt.NDArray[Any], view: View) -> Float64:
    """Returns future headings in this view."""
    return np.array([wrap_angle(float(yaw) - view.yaw_rad) for yaw in yaws], np.float64)


def merge_repeated(points: Float64, commands: Sequence[int]) -> tuple[Float64, list[int]]:
    """Drops target points that repeat the one before them; a list of two is left alone."""
    kept = [0]
    for index in range(1, len(points)):
        if len(points) == 2 or not np.allclose(points[index, :2], points[kept[-1], :2]):
            kept.append(index)
    return points[kept], [commands[index] for index in kept]


def target_points(points: Float64, passed: Float64, position: Float64, yaw: float, view: View) -> dict[str, Float64]:
    """Returns the five target points in this view; `points` and `passed` are global, of at least two and any length."""
    turn = rotation(yaw)

    def local(point: Float64) -> Float64:
        return np.asarray(view.points((turn.T @ (point[:2] - position))[None])[0])

    last = len(points) - 1
    return {
        "target_point": local(points[1]),
        "target_point_next": local(points[min(2, last)]),
        "target_point_subsequent": local(points[min(3, last)]),
        "target_point_previous": local(points[0]),
        "target_point_previous_previous": local(passed[-1] if len(passed) else points[0]),
    }


def one_hot_command(command: int, size: int = COMMANDS) -> Float64:
    """Returns a CARLA command (1..6, others mean lane following) as a vector of six, or of NavSim's four."""
    index = (FOLLOW_LANE if command < 0 else command) - 1
    index = index if 0 <= index < COMMANDS else FOLLOW_LANE - 1
    vector = np.zeros(size)
    vector[index if size == COMMANDS else NAVSIM_COMMANDS[index]] = 1.0
    return vector


def lane_change_flags(points: dict[str, Float64]) -> dict[str, bool]:
    """Returns LEAD's flags of frames around an urgent lane change, from distances between target points."""
    target, following = points["target_point"], points["target_point_next"]
    previous, earlier = points["target_point_previous"], points["target_point_previous_previous"]
    to_target, to_following, to_previous = (float(np.linalg.norm(p)) for p in (target, following, previous))
    gap = float(np.linalg.norm(target - following))
    close_pair = 0.1 < gap < 10
    urgent = (close_pair and to_target < 11 and to_following < 15) or float(np.linalg.norm(target - previous)) < 10
    pre = not urgent and close_pair and 8.5 <= to_target < 25.0 and 13.5 <= to_following < 30.0
    behind = 0.1 < float(np.linalg.norm(previous - earlier)) < 10 and to_previous < 10
    post = not urgent and not pre and behind
    return {
        "urgent_lane_change": urgent,
        "pre_urgent_lane_change": pre,
        "post_urgent_lane_change": post,
        "near_urgent_lane_change": urgent or pre or post,
    }
