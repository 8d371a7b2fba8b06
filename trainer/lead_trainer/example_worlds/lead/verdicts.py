"""The verdict files of example routes: LEAD's `results.json` and the leaderboard's checkpoint file.

Called by `route_files.py`. Which routes fail is the caller's choice; how goes round a list that LEAD's filter refuses.
"""

from typing import Any

INFRACTIONS = (
    "collisions_layout", "collisions_pedestrian", "collisions_vehicle", "red_light", "stop_infraction",
    "outside_route_lanes", "min_speed_infractions", "yield_emergency_vehicle_infractions", "scenario_timeouts",
    "route_dev", "vehicle_blocked", "route_timeout",
)  # fmt: skip

_FAILURES = (
    ("Completed", "collisions_vehicle", 100.0, 0.6),
    ("Failed - Agent got blocked", "vehicle_blocked", 41.5, 1.0),
    ("Failed - Agent crashed", None, 12.0, 0.0),
    ("Completed", "red_light", 100.0, 0.7),
)

Verdict = dict[str, Any]


def verdict(index: int, *, failed: bool, route_length_m: float, duration_s: float) -> Verdict:
    """Returns the content of `results.json` for route number `index`."""
    status, infraction, driven, penalty = ("Perfect", None, 100.0, 1.0)
    if failed:
        status, infraction, driven, penalty = _FAILURES[index % len(_FAILURES)]
    elif index % 4 == 3:
        status, infraction, driven, penalty = ("Completed", "min_speed_infractions", 100.0, 0.96)
    infractions: dict[str, list[str]] = {name: [] for name in INFRACTIONS}
    if infraction:
        infractions[infraction].append(f"{infraction} on example route {index}")
    return {
        "index": index,
        "route_id": f"RouteScenario_{index}_rep0",
        "status": status,
        "num_infractions": int(infraction is not None),
        "infractions": infractions,
        "scores": {"score_route": driven, "score_penalty": penalty, "score_composed": driven * penalty},
        "meta": {"route_length": route_length_m, "duration_game": duration_s, "duration_system": duration_s},
    }


def leaderboard_checkpoint(result: Verdict) -> dict[str, Any]:
    """Returns the leaderboard's checkpoint file of a run over this one route."""
    return {
        "_checkpoint": {"global_record": {}, "progress": [1, 1], "records": [result]},
        "entry_status": "Finished",
        "eligible": True,
    }
