"""Ego metas as columns: which fields of LEAD's `metas/*.pkl` are kept, with which type, one row a frame.

Called by the preparation; the loader reads the columns back through `meta_columns`. A required field that is missing
is a BadData naming file and field; an optional one becomes null, and a stored None a value LEAD uses (inf, "NA").
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lead_trainer.errors import BadData
from lead_trainer.recipes.lead.targets.label_classes import NO_SCENARIO

FUTURE_STEPS = 101  # simulator steps kept of the futures, now included: 5 s at 20 Hz

TEXTS = (
    "town", "current_active_scenario_type", "previous_active_scenario_type", "lane_type_str", "vehicle_door_side",
    "weather_setting",
)  # fmt: skip
FLAGS = (
    "changed_route", "stop_sign_hazard", "walker_hazard", "light_hazard", "vehicle_hazard", "is_intersection",
    "reduce_speed_discontinuous_road", "reduce_speed_high_route_curvature", "does_emergency_brake_for_pedestrians",
    "construction_obstacle_two_ways_stuck", "accident_two_ways_stuck", "parked_obstacle_two_ways_stuck",
    "vehicle_opens_door_two_ways_stuck", "vehicle_opened_door", "rear_danger_8", "rear_danger_16", "brake_cutin",
    "emergency_brake_for_special_vehicle", "slower_bad_visibility", "slower_clutterness", "slower_occluded_junction",
    "over_head_traffic_light", "europe_traffic_light", "stop_sign_close",
)  # fmt: skip
NUMBERS = (
    "ego_lane_id", "jpeg_storage_quality", "visual_visibility", "num_parking_vehicles_in_proximity",
    "num_dangerous_adversarial", "num_safe_adversarial", "num_ignored_adversarial", "rear_adversarial_id",
)  # fmt: skip
MEASURES = (
    "steer", "throttle", "brake", "dist_to_road_discontinuity", "dist_to_construction_site", "dist_to_accident_site",
    "dist_to_parked_obstacle", "dist_to_vehicle_opens_door", "dist_to_cutin_vehicle", "dist_to_pedestrian",
    "dist_to_biker", "distance_to_next_junction", "signed_dist_to_lane_change", "speed", "accel_x", "accel_y",
    "accel_z", "angular_velocity_x", "angular_velocity_y", "angular_velocity_z", "speed_limit",
    "privileged_acceleration", "route_curvature", "average_traffic_speed", "distance_to_intersection_index_ego",
    "ego_lane_width", "route_left_length", "distance_ego_to_route", "land_mark_speed_limit",
    "last_encountered_speed_limit_sign", "target_speed_limit", "target_speed", "theta", "privileged_yaw",
    "traffic_light_height", "second_highest_speed", "second_highest_speed_limit", "max_adversarial_speed",
    "perturbation_rotation", "perturbation_translation",
)  # fmt: skip
# LEAD's collections of 2026 describe themselves in `dataset_information` and no longer write these.
LAYOUT_MARK = "dataset_information"
DROPPED = frozenset({"reduce_speed_discontinuous_road", "reduce_speed_high_route_curvature"})
REQUIRED_MEASURES = frozenset({"speed", "theta", "perturbation_rotation", "perturbation_translation"})
CONTROLS = frozenset({"steer", "throttle", "brake"})
UNMEASURED = frozenset(MEASURES) - REQUIRED_MEASURES - CONTROLS  # infinite where the expert met no such thing

_LIST64 = pa.list_(pa.float64())  # also of what most collections store in 32 bits, so that none loses digits
POINT_LISTS: dict[str, pa.DataType] = {
    "pos_global": _LIST64,  # xy
    "noisy_pos_global": _LIST64,
    "next_target_points": _LIST64,  # xy xy ..., global
    "previous_target_points": _LIST64,
    "next_commands": pa.list_(pa.int32()),
    "next_gps_target_points": _LIST64,
    "previous_gps_target_points": _LIST64,
    "next_gps_commands": pa.list_(pa.int32()),
    "route": _LIST64,  # xy xy ..., ego frame
    "future_positions": _LIST64,
    "future_yaws": _LIST64,
}

SCHEMA = pa.schema(
    [("frame", pa.int32())]
    + [(name, pa.string()) for name in TEXTS]
    + [(name, pa.bool_()) for name in FLAGS]
    + [(name, pa.int64()) for name in NUMBERS]
    + [(name, pa.float64()) for name in MEASURES]
    + list(POINT_LISTS.items())
)


def meta_row(meta: Mapping[str, Any], frame: int, tp_pop_distance: float, path: str) -> dict[str, Any]:
    """Returns one frame's columns; `path` is the file, for messages."""
    try:
        row: dict[str, Any] = {"frame": frame}
        row |= {name: _text(meta[name]) for name in TEXTS}
        dropped = DROPPED - meta.keys() if LAYOUT_MARK in meta else frozenset()
        row |= {name: bool(meta[name]) for name in FLAGS if name not in dropped}
        row |= {name: -1 if meta[name] is None else int(meta[name]) for name in NUMBERS}
        row |= {name: _measure(meta[name]) for name in MEASURES if name in meta}
        missing = sorted(name for name in REQUIRED_MEASURES if name not in meta)
        if missing:
            raise KeyError(missing[0])
        unknown = sorted(name for name in REQUIRED_MEASURES if math.isnan(row[name]))
        if unknown:
            raise ValueError(f"{unknown[0]} is not a number")
        return row | _points(meta, tp_pop_distance)
    except KeyError as error:
        layout = "with" if LAYOUT_MARK in meta else "without"
        raise BadData(
            f"file {path} has no field {error}, which LEAD's layout {layout} {LAYOUT_MARK} has; "
            "collect the route again or remove it"
        ) from error
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        raise BadData(f"file {path} holds a value of an unexpected kind: {error}") from error


def meta_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Returns rows as a table of SCHEMA."""
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def scenario_type(current: str | None, previous: str | None) -> str:
    """Returns the scenario a frame belongs to: the active one, else the last one, else NA."""
    return next((name for name in (current, previous) if name is not None and name != NO_SCENARIO), NO_SCENARIO)


def _points(meta: Mapping[str, Any], distance: float) -> dict[str, Any]:
    name = f"previous_target_points_{distance}"
    passed = meta.get(name, ()) if LAYOUT_MARK in meta else meta[name]
    columns: dict[str, Any] = {
        "pos_global": _position(meta["pos_global"]),
        "next_target_points": _flat(meta[f"next_target_points_{distance}"]),
        "previous_target_points": _flat(passed),
        "next_commands": [int(value) for value in meta[f"next_commands_{distance}"]],
    }
    if "noisy_pos_global" in meta and f"next_gps_target_points_{distance}" in meta:
        columns |= {
            "noisy_pos_global": _position(meta["noisy_pos_global"]),
            "next_gps_target_points": _flat(meta[f"next_gps_target_points_{distance}"]),
            "previous_gps_target_points": _flat(meta[f"previous_gps_target_points_{distance}"]),
            "next_gps_commands": [int(value) for value in meta[f"next_gps_commands_{distance}"]],
        }
    if meta.get("route") is not None:
        columns["route"] = _flat(meta["route"])
    if meta.get("future_positions") is not None:
        columns["future_positions"] = _flat(meta["future_positions"][:FUTURE_STEPS])
        columns["future_yaws"] = np.asarray(meta["future_yaws"][:FUTURE_STEPS], np.float64).tolist()
    return columns


def _position(value: Any) -> list[float]:
    """Returns x and y of a position."""
    return _flat([[float(value[0]), float(value[1])]])


def _flat(points: Any) -> list[float]:
    """Returns x y x y ... of points with two or more coordinates."""
    array = np.asarray(points, np.float64)
    if array.size == 0:
        return []
    if array.ndim != 2 or array.shape[1] < 2 or np.isnan(array[:, :2]).any():
        raise ValueError(f"points of shape {array.shape}, expected (n, 2) or more numbers")
    flat: list[float] = array[:, :2].reshape(-1).tolist()
    return flat


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        value = value[0]  # LEAD stores the door side as a list of one
    return NO_SCENARIO if value is None else str(value)


def _measure(value: Any) -> float:
    return math.inf if value is None else float(value)
