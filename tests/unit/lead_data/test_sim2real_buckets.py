"""Beside real data every CARLA frame falls into LEAD's first fitting bucket, with LEAD's factor."""

from collections import Counter
from functools import cache
from typing import Any

import pytest

from lead_testing import shared_dir
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadData
from lead_trainer.recipes.lead.ingest.plain_pickle import read_plain
from lead_trainer.recipes.lead.preparation import LeadPreparation
from lead_trainer.recipes.lead.sim2real_buckets import (
    BAD_WEATHER,
    GENERAL,
    MINED,
    RULES,
    MinedFrame,
    bucket_of,
    numbered,
)

RULES_OF_NAVSIM = (BAD_WEATHER, *RULES)
CAR = {"class": "car", "id": 7, "speed": 3.0, "distance": 9.0, "position": [9.0, 0.0, 0.0]}
STILL = {**CAR, "speed": 0.0}
CONE = {"class": "static", "id": 9, "distance": 5.0, "position": [5.0, 0.0, 0.0],
        "type_id": "static.prop.constructioncone"}  # fmt: skip
LIGHT = {"class": "traffic_light", "id": 8, "state": "Red", "affects_ego": True, "distance": 20.0,
         "is_over_head_traffic_light": False, "is_europe_traffic_light": False,
         "position": [20.0, 0.0, 5.0]}  # fmt: skip


@cache
def quiet_meta() -> dict[str, Any]:
    """Returns a recorded meta with nothing going on."""
    path = sorted((shared_dir() / "golden/lead_data/carla_leaderboard2").glob("data/*/*101*/metas/0009.pkl"))[0]
    meta = dict(read_plain(path.read_bytes(), "m"))
    x, y = meta["pos_global"][:2]
    return meta | {
        "theta": 0.0, "pos_global": [x, y, 0.0], "next_target_points_3.25": [[x + 30, y], [x + 60, y], [x + 120, y]],
        "next_commands_3.25": [4, 4, 4], "previous_target_points_3.25": [],
        "route": [[d + 2.5, 0.0] for d in range(20)],
        "current_active_scenario_type": None, "previous_active_scenario_type": None, "town": "Town05",
        "scenario_actors_ids": [], "scenario_obstacles_ids": [], "visual_visibility": 0, "speed": 5.0, "brake": False,
        "privileged_acceleration": 0.0, "distance_to_next_junction": 40.0, "speed_limit": 10.0,
        "light_hazard": False, "vehicle_hazard": False, "stop_sign_hazard": False, "slower_occluded_junction": False,
    }  # fmt: skip


def bucket(changes: dict[str, Any], *boxes: dict[str, Any]) -> str:
    frame = MinedFrame({**quiet_meta(), **changes}, boxes, 3.25)
    return RULES_OF_NAVSIM[bucket_of(RULES_OF_NAVSIM, frame, "m.pkl")].name


def active(name: str, **changes: Any) -> dict[str, Any]:
    return {"current_active_scenario_type": name, **changes}


def ahead(x: float, y: float, gap: float = 60.0) -> dict[str, Any]:
    here = quiet_meta()["pos_global"]
    return {"next_target_points_3.25": [[here[0] + x - 40, here[1] - 40], [here[0] + x, here[1] + y],
                                        [here[0] + x + gap, here[1] + y]]}  # fmt: skip


CASES: list[tuple[dict[str, Any], tuple[dict[str, Any], ...], str]] = [
    ({}, (), "Others"),
    ({"visual_visibility": 1, "vehicle_hazard": True}, (), "BadWeather"),
    (active("Accident", dist_to_accident_site=20, scenario_obstacles_ids=[7]), (CAR,), "Accident"),
    (active("Accident", dist_to_accident_site=50, scenario_obstacles_ids=[7]), (CAR,), "Others"),
    ({"previous_active_scenario_type": "Accident", "dist_to_accident_site": 20, "scenario_obstacles_ids": [7]}, (CAR,),
     "Accident"),
    (active("BlockedIntersection", scenario_obstacles_ids=[7]), (STILL,), "BlockedIntersection"),
    (active("BlockedIntersection", scenario_obstacles_ids=[7]), (CAR,), "Others"),
    (active("ConstructionObstacle", dist_to_construction_site=None), (CONE,), "Others"),
    (active("ConstructionObstacle", dist_to_construction_site=10), (CONE,), "ConstructionObstacle"),
    (active("InvadingTurn"), (CONE,), "InvadingTurn"),
    (active("HardBreakRoute", brake=True, privileged_acceleration=-4.0), (), "HardBreakRoute"),
    (active("HardBreakRoute", brake=True, vehicle_hazard=True, privileged_acceleration=-4.0), (), "VehicleHazard"),
    (active("DynamicObjectCrossing", scenario_actors_ids=[7]), (CAR,), "DynamicObjectCrossing"),
    (active("HighwayCutIn", scenario_actors_ids=[7]), (CAR,), "HighwayCutIn"),
    (active("ParkedObstacle", dist_to_parked_obstacle=34), (STILL,), "ParkedObstacle"),
    (active("ParkingCutIn", dist_to_cutin_vehicle=19.9), (), "ParkingCutIn"),
    (active("ParkingCutIn", dist_to_cutin_vehicle=20.0), (), "Others"),
    (active("PriorityAtJunction", distance_to_next_junction=4.9), (), "PriorityAtJunction"),
    (active("SignalizedJunctionLeftTurn", distance_to_next_junction=4.9), (), "Others"),
    (active("SignalizedJunctionLeftTurn", distance_to_next_junction=4.9, scenario_actors_ids=[1]), (),
     "SignalizedJunctionLeftTurn"),
    ({"light_hazard": True, "speed": 0.0}, ({**LIGHT, "is_over_head_traffic_light": True},), "RedOverheadTrafficLight"),
    ({"light_hazard": True, "speed": 0.0}, ({**LIGHT, "is_europe_traffic_light": True},), "RedEuropeTrafficLight"),
    ({"light_hazard": True, "speed": 0.0, "distance_to_next_junction": 4.0}, (LIGHT,), "RedTrafficLight"),
    ({"light_hazard": True, "speed": 0.2, "distance_to_next_junction": 4.0}, (LIGHT,), "Others"),
    ({"slower_occluded_junction": True, "distance_to_next_junction": 4.0}, (), "OccludedJunction"),
    ({"stop_sign_hazard": True, "distance_to_next_junction": 9.0}, (), "StopSignHazard"),
    ({"distance_to_next_junction": 3.0, "speed": 2.1, "privileged_acceleration": 2.1}, (), "EnteringJunction"),
    ({"distance_to_next_junction": 0.5}, (), "CloseToJunction"),
    ({"distance_to_next_junction": 0.5, "speed_limit": 13.9}, (), "Others"),
    ({"privileged_acceleration": -18.0}, (), "HighAcceleration"),
    ({"privileged_acceleration": 16.0}, (), "MediumAcceleration"),
    ({"privileged_acceleration": 13.0}, (), "LowAcceleration"),
    ({"town": "Town15"}, (), "Town15"),
    (ahead(-20, 0), (), "TargetPointBehindEgo"),
    (ahead(180, 0), (), "FarTargetPoint"),
    (ahead(5, 5, gap=2), (), "NearUrgentLaneChange"),
    ({"route": [[d + 2.5, 0.2 * (d + 2.5)] for d in range(20)]}, (), "HighRouteCurvature"),
    ({"route": [[d + 2.5, 0.1 * (d + 2.5)] for d in range(20)]}, (), "MediumRouteCurvature"),
    ({"route": [[d + 2.5, 0.1 * (d + 2.5)] for d in range(20)], "speed": 0.0}, (), "Others"),
    ({"route": [[2.5, d + 1.0] for d in range(20)]}, (), "LargeLateralDeviation"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "boxes", "expected"), CASES, ids=range(len(CASES)))
def test_a_frame_falls_into_leads_first_fitting_bucket(
    changes: dict[str, Any], boxes: tuple[dict[str, Any], ...], expected: str
) -> None:
    assert bucket(changes, *boxes) == expected


def test_factors_and_numbers_are_leads() -> None:
    assert len(MINED["navsim_pretrain"][1]) == 60 and len(MINED["waymo_posttrain"][1]) == 59
    assert len({rule.name for rule in RULES_OF_NAVSIM}) == 60
    counts = {1.0: 18, 0.0: 13, 5.0: 9, 3.0: 9, 0.1: 2, 0.2: 2, 1.5: 1, 0.6: 1, 0.5: 1, 4.0: 1, 2.0: 1, 2.5: 1}
    assert Counter(rule.factor for rule in RULES) == counts
    assert BAD_WEATHER.factor == 0.0


@pytest.mark.parametrize(
    ("name", "navsim"),
    [("BadWeather", 0), ("Accident", 1), ("VehicleTurningRoutePedestrian", 40), ("FarTargetPoint", 41), ("Town15", 42),
     ("TargetPointBehindEgo", 43), ("RedOverheadTrafficLight", 47), ("HighAcceleration", 54), ("Others", 59)],
)  # fmt: skip
def test_a_bucket_has_the_number_that_lead_writes_into_samples(name: str, navsim: int) -> None:
    numbers = {
        source: [rule.name for rule in numbered(MINED[f"{source}_pretrain"][1])] for source in ("navsim", "waymo")
    }
    assert numbers["navsim"].index(name) == navsim
    assert numbers["navsim"][1:] == numbers["waymo"]  # LEAD sorts bad weather out for NavSim only
    assert numbers["waymo"][-len(GENERAL) :] == list(GENERAL)


def test_a_missing_field_is_named() -> None:
    meta = {key: value for key, value in quiet_meta().items() if key != "scenario_actors_ids"}
    meta["current_active_scenario_type"] = "PedestrianCrossing"
    with pytest.raises(BadData, match=r"file m\.pkl.*scenario_actors_ids"):
        bucket_of(RULES, MinedFrame(meta, (), 3.25), "m.pkl")


def test_every_kept_frame_of_a_tree_is_in_exactly_one_bucket() -> None:
    preparation = LeadPreparation()
    tree = FolderTree(shared_dir() / "golden/lead_data/carla_leaderboard2")
    values = {"preset": "carla_navsim", "source_dataset": "carla"}
    assert list(preparation.collections_for(values)) == ["navsim_pretrain", "navsim_posttrain"]
    keys = preparation.config_keys(values)
    scan = preparation.scan(tree, keys, ["full_pretrain", "navsim_pretrain", "waymo_pretrain"])
    whole, clear, mined = scan.collections
    assert sum(len(one.samples) for one in clear.buckets) == len(whole.buckets[0].samples) and len(clear.buckets) == 60
    members = [int(number) for one in mined.buckets for number in one.samples]
    assert sorted(members) == sorted(whole.buckets[0].samples.tolist()) and len(mined.buckets) == 59
    assert sum(len(one.samples) > 0 for one in mined.buckets) >= 3
    assert [one.name for one in mined.buckets] == [rule.name for rule in numbered(RULES)]
    assert mined.mixture == tuple(rule.factor for rule in numbered(RULES))
