"""The entries of a sample that come from the ego metas alone; called by `dataset` for each sample."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import structlog

from lead_trainer.contract.samples import Sample
from lead_trainer.errors import BadData
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.prepare_metas import FLAGS, MEASURES, NUMBERS, TEXTS, scenario_type
from lead_trainer.recipes.lead.targets.label_classes import NO_SCENARIO, SCENARIO_TYPES
from lead_trainer.recipes.lead.targets.planner import (
    future_headings,
    lane_change_flags,
    mean_bearing,
    merge_repeated,
    one_hot_command,
    route_points,
    target_points,
)
from lead_trainer.recipes.lead.targets.view import View

log = structlog.get_logger(__name__)

Array = npt.NDArray[Any]


def meta_entries(meta: Mapping[str, Any]) -> Sample:
    """Returns the copied fields and the scenario; flags and measures that were never stored are left out."""
    entries: Sample = {name: meta[name] for name in (*TEXTS, *NUMBERS)}
    entries |= {name: meta[name] for name in (*FLAGS, *MEASURES) if meta[name] is not None}
    scenario = scenario_type(meta["current_active_scenario_type"], meta["previous_active_scenario_type"])
    return entries | {"scenario_type": scenario, "scenario_type_id": scenario_id(scenario)}


@cache
def scenario_id(name: str) -> int:
    """Returns LEAD's number of a scenario type; an unknown one gets the number of NA, with one warning."""
    if name not in SCENARIO_TYPES:
        log.warning(f"scenario type {name!r} is not in LEAD's list; it is numbered like {NO_SCENARIO}")
        return SCENARIO_TYPES.index(NO_SCENARIO)
    return SCENARIO_TYPES.index(name)


def planner_entries(meta: Mapping[str, Any], view: View, config: LeadConfig, waypoints: Sequence[int]) -> Sample:
    """Returns target points, commands and, for the planner, route and waypoints in one view."""
    gps = "gps_" if config.use_noisy_tp else ""
    points = _points(meta, f"next_{gps}target_points", 2)
    passed = _points(meta, f"previous_{gps}target_points", 2)
    commands = list(meta[f"next_{gps}commands"])
    if min(len(points), len(commands)) < 2:
        raise BadData(f"next_{gps}target_points: found {len(points)}, expected at least 2")
    count = min(len(points), len(commands))
    merged, merged_commands = merge_repeated(points[:count], commands[:count])
    if len(merged) < 2:
        raise BadData(f"next_{gps}target_points: all {count} are one point, expected at least 2 different ones")
    position = np.asarray(meta["noisy_pos_global" if config.use_noisy_tp else "pos_global"])
    targets = target_points(merged, passed, position, meta["theta"], view)
    entries: Sample = {**targets, **lane_change_flags(targets)}
    if config.use_discrete_command:
        command = one_hot_command(merged_commands[0], config.discrete_command_dim)
        entries |= {"command": command, "previous_command": command.copy()}
        entries["next_command"] = one_hot_command(merged_commands[1], config.discrete_command_dim)
    return entries if config.is_pretraining else entries | _paths(meta, view, config, waypoints)


def _paths(meta: Mapping[str, Any], view: View, config: LeadConfig, waypoints: Sequence[int]) -> Sample:
    """Returns route, waypoints and the control values the planner learns; `target_speed` is among the copied fields."""
    speed = ("target_speed",) if config.predict_target_speed else ()
    for name in ("route", "future_positions", "future_yaws", "brake", "throttle", *speed):
        if meta[name] is None:
            raise BadData(f"the meta has no field {name}, which the planner needs; collect the route again")
    route = route_points(_points(meta, "route", 2), view, config.num_route_points_smoothing, config.smooth_route)[
        : config.num_route_points_prediction
    ]
    positions, yaws = _points(meta, "future_positions", 2), np.asarray(meta["future_yaws"])
    reached = [step for step in waypoints if step < len(positions)]
    entries: Sample = {"route": route, "route_labels_curvature": mean_bearing(route), "brake": bool(meta["brake"])}
    if reached:
        entries["future_waypoints"] = view.points(positions[reached])
        entries["future_yaws"] = future_headings(yaws[reached], view)
    return entries


def _points(meta: Mapping[str, Any], name: str, coordinates: int) -> Array:
    if meta[name] is None:
        raise BadData(f"the meta has no field {name}; collect the route again or remove it")
    return np.asarray(meta[name]).reshape(-1, coordinates)
