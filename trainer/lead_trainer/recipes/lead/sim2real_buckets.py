"""CARLA's buckets beside real data: every frame falls into the first rule that fits it, and each rule has a factor.

LEAD's NavSimBucketCollection and WaymoBucketCollection (lead/data_buckets): about 40 rules of scenarios with a test of
how near their actors are, then general ones. Filled by the preparation, which reads metas and boxes of every frame for
it. LEAD sorts bad weather out for NavSim only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from lead_trainer.errors import BadData
from lead_trainer.recipes.lead.prepare_metas import scenario_type
from lead_trainer.recipes.lead.targets.planner import (
    lane_change_flags,
    mean_bearing,
    merge_repeated,
    route_points,
    target_points,
)
from lead_trainer.recipes.lead.targets.view import NORMAL

CONE = "static.prop.constructioncone"
ROUTE_POINTS, ROUTE_USED = 20, 10
URBAN_SPEED_LIMIT = 50 / 3.6  # m/s


@dataclass(frozen=True)
class MinedFrame:
    """What the rules read of one frame; None of a stored number counts as infinitely far."""

    meta: Mapping[str, Any]
    boxes: Sequence[Mapping[str, Any]]
    tp_pop_distance: float

    @property
    def active(self) -> str | None:
        value: str | None = self.meta["current_active_scenario_type"]
        return value

    @cached_property
    def scenario(self) -> str:
        return scenario_type(self.active, self.meta["previous_active_scenario_type"])

    def number(self, name: str) -> float:
        """Returns a stored number."""
        value = self.meta[name]
        return float("inf") if value is None else float(value)

    @cached_property
    def targets(self) -> dict[str, npt.NDArray[np.float64]]:
        """Target points in the ego frame."""
        listed = np.asarray(self.meta[f"next_target_points_{self.tp_pop_distance}"], np.float64)[:, :2]
        points, _ = merge_repeated(listed, [0] * len(listed))
        passed = np.array(self.meta.get(f"previous_target_points_{self.tp_pop_distance}") or [], np.float64)
        position = np.asarray(self.meta["pos_global"], np.float64)[:2]
        return target_points(points, passed, position, self.meta["theta"], NORMAL)

    @cached_property
    def near_lane_change(self) -> bool:
        return lane_change_flags(self.targets)["near_urgent_lane_change"]

    @cached_property
    def route(self) -> npt.NDArray[np.float64]:
        path = np.asarray(self.meta["route"], np.float64)[:, :2]
        return route_points(path, NORMAL, ROUTE_POINTS, smooth=True)[:ROUTE_USED]

    def any_box(self, fits: Callable[[Mapping[str, Any]], bool]) -> bool:
        """Returns whether a box fits."""
        return any(fits(box) for box in self.boxes)

    def actor_within(self, metres: float) -> bool:
        """Returns whether one of the scenario's actors is that near."""
        ids = set(self.meta["scenario_actors_ids"])
        return bool(ids) and self.any_box(lambda box: box["id"] in ids and float(box["distance"]) < metres)

    def first_actor(self, fits: Callable[[Mapping[str, Any]], bool]) -> bool:
        """Returns whether the scenario's first actor fits."""
        ids = list(self.meta["scenario_actors_ids"])
        return bool(ids) and self.any_box(lambda box: box["id"] == ids[0] and fits(box))

    def obstacle_beyond(self, x: float) -> bool:
        """Returns whether one of the scenario's obstacles is further ahead than `x`."""
        ids = set(self.meta["scenario_obstacles_ids"])
        return self.any_box(lambda box: box["id"] in ids and box["position"][0] > x)

    def at_junction_with_actors(self) -> bool:
        """Returns whether a junction is near and the scenario has actors."""
        return self.number("distance_to_next_junction") < 5.0 and len(self.meta["scenario_actors_ids"]) > 0

    def stands_at_red(self, kind: str = "affects_ego") -> bool:
        """Returns whether the ego stands at a red light, of a kind that its box names."""
        if not self.meta["light_hazard"] or self.number("speed") >= 0.1:
            return False
        return self.any_box(
            lambda box: (
                box["class"] == "traffic_light"
                and box["state"] == "Red"
                and bool(box["affects_ego"])
                and bool(box[kind])
            )
        )


Test = Callable[[MinedFrame], bool]


@dataclass(frozen=True)
class Rule:
    """One bucket."""

    name: str
    factor: float
    fits: Test


def _active(name: str, factor: float, fits: Test = lambda frame: True) -> Rule:
    return Rule(name, factor, lambda frame: frame.active == name and fits(frame))


def _in(name: str, factor: float, fits: Test) -> Rule:
    return Rule(name, factor, lambda frame: frame.scenario == name and fits(frame))


def _near(metres: float) -> Test:
    return lambda frame: frame.actor_within(metres)


def _lane_change(frame: MinedFrame) -> bool:
    return frame.near_lane_change


def _junction(frame: MinedFrame) -> bool:
    return frame.at_junction_with_actors()


def _accident(frame: MinedFrame) -> bool:
    return frame.number("dist_to_accident_site") < 42 and frame.obstacle_beyond(0.0)


def _blocked(frame: MinedFrame) -> bool:
    ids = list(frame.meta["scenario_obstacles_ids"])
    return bool(ids) and frame.any_box(
        lambda box: (
            box["class"] == "car" and float(box["speed"]) < 0.1 and box["id"] == ids[0] and float(box["distance"]) < 15
        )
    )


def _construction(frame: MinedFrame) -> bool:
    near = frame.number("dist_to_construction_site") < 42
    return near and frame.any_box(lambda box: box.get("type_id") == CONE and box["position"][0] > -10.0)


def _hard_brake(frame: MinedFrame) -> bool:
    braking = bool(frame.meta["brake"]) and not frame.meta["vehicle_hazard"]
    return braking and (frame.number("privileged_acceleration") < -3.0 or frame.number("speed") == 0.0)


def _cone_ahead(frame: MinedFrame) -> bool:
    return frame.any_box(lambda box: box.get("type_id") == CONE and 0 < box["position"][0] < 16)


def _parked(frame: MinedFrame) -> bool:
    near = frame.number("dist_to_parked_obstacle") < 35
    return near and frame.any_box(
        lambda box: box["class"] == "car" and float(box["speed"]) < 0.1 and box["position"][0] > -8.0
    )


def _cut_in(frame: MinedFrame) -> bool:
    return frame.number("dist_to_cutin_vehicle") < 20


def _moving_car(box: Mapping[str, Any]) -> bool:
    return bool(box["class"] == "car" and float(box["speed"]) > 0.1)


def _entering(frame: MinedFrame) -> bool:
    at = 0.0 < frame.number("distance_to_next_junction") < 3.5
    return at and frame.number("speed") > 2.0 and frame.number("privileged_acceleration") > 2.0


def _bent(curvature: float) -> Test:
    return lambda frame: mean_bearing(frame.route) > curvature and frame.number("speed") > 0.1


def _accelerating(limit: float) -> Test:
    return lambda frame: abs(frame.number("privileged_acceleration")) > limit


BAD_WEATHER = Rule("BadWeather", 0.0, lambda frame: frame.meta["visual_visibility"] > 0)

RULES: tuple[Rule, ...] = (
    _in("Accident", 1.0, _accident),
    _in("AccidentTwoWays", 0.2, _accident),
    _active("BlockedIntersection", 1.0, _blocked),
    _in("ConstructionObstacle", 1.5, _construction),
    _in("ConstructionObstacleTwoWays", 0.1, _construction),
    _active("CrossingBicycleFlow", 0.0, _near(10)),
    _active("CrossJunctionDefectTrafficLight", 3.0, _near(10)),
    _active("DynamicObjectCrossing", 1.0, _near(20)),
    _active("EnterActorFlow", 0.0, _lane_change),
    _active("EnterActorFlowV2", 0.0, _lane_change),
    _active("HardBreakRoute", 1.0, _hard_brake),
    _active("HazardAtSideLane", 0.0, _near(20)),
    _active("HazardAtSideLaneTwoWays", 0.0, _near(20)),
    _active("HighwayCutIn", 0.0, lambda f: f.first_actor(lambda b: b["class"] == "car" and float(b["distance"]) < 32)),
    _active("HighwayExit", 1.0, _lane_change),
    _active("InterurbanActorFlow", 0.0, _junction),
    _active("InterurbanAdvancedActorFlow", 1.0, _junction),
    _in("InvadingTurn", 3.0, _cone_ahead),
    _active("MergerIntoSlowTraffic", 0.0, _lane_change),
    _active("MergerIntoSlowTrafficV2", 0.0, _lane_change),
    _active("NonSignalizedJunctionLeftTurn", 3.0, _junction),
    _active("NonSignalizedJunctionLeftTurnEnterFlow", 1.0, _junction),
    _active("NonSignalizedJunctionRightTurn", 3.0, _junction),
    _active("OppositeVehicleRunningRedLight", 5.0, lambda frame: frame.first_actor(_moving_car)),
    _active("OppositeVehicleTakingPriority", 5.0, lambda frame: frame.first_actor(_moving_car)),
    _in("ParkedObstacle", 3.0, _parked),
    _in("ParkedObstacleTwoWays", 1.0, _parked),
    _active("ParkingCrossingPedestrian", 1.0, _near(20)),
    _active("ParkingCutIn", 5.0, _cut_in),
    _active("ParkingExit", 0.0),
    _active("PedestrianCrossing", 5.0, lambda frame: len(frame.meta["scenario_actors_ids"]) > 0),
    _active("PriorityAtJunction", 5.0, lambda frame: frame.number("distance_to_next_junction") < 5.0),
    _active("RedLightWithoutLeadVehicle", 2.0, lambda frame: frame.stands_at_red()),
    _active("SignalizedJunctionLeftTurn", 3.0, _junction),
    _active("SignalizedJunctionLeftTurnEnterFlow", 3.0, _junction),
    _active("SignalizedJunctionRightTurn", 5.0, _junction),
    _active("StaticCutIn", 5.0, _cut_in),
    _in("VehicleOpensDoorTwoWays", 5.0,
        lambda frame: frame.number("dist_to_vehicle_opens_door") < 24 and frame.obstacle_beyond(-8.0)),
    _active("VehicleTurningRoute", 0.0, lambda frame: frame.first_actor(lambda box: float(box["distance"]) < 15)),
    _active("VehicleTurningRoutePedestrian", 2.5,
            lambda frame: frame.first_actor(lambda box: float(box["distance"]) < 15)),
    Rule("RedOverheadTrafficLight", 0.5, lambda frame: frame.stands_at_red("is_over_head_traffic_light")),
    Rule("RedEuropeTrafficLight", 1.0, lambda frame: frame.stands_at_red("is_europe_traffic_light")),
    Rule("OccludedJunction", 3.0,
         lambda f: bool(f.meta["slower_occluded_junction"]) and f.number("distance_to_next_junction") < 5.0),
    Rule("NearUrgentLaneChange", 0.0, _lane_change),
    Rule("HighAcceleration", 1.0, _accelerating(17.5)),
    Rule("LargeLateralDeviation", 1.0, lambda frame: bool((np.abs(frame.route[:, 1]) > 6.5).any())),
    Rule("StopSignHazard", 3.0,
         lambda f: bool(f.meta["stop_sign_hazard"]) and f.number("distance_to_next_junction") < 10.0),
    Rule("EnteringJunction", 4.0, _entering),
    Rule("CloseToJunction", 1.0,
         lambda f: f.number("distance_to_next_junction") < 1.0 and f.number("speed_limit") < URBAN_SPEED_LIMIT),
    Rule("TargetPointBehindEgo", 5.0, lambda frame: bool(frame.targets["target_point"][0] < 0)),
    Rule("VehicleHazard", 0.2, lambda frame: bool(frame.meta["vehicle_hazard"])),
    Rule("RedTrafficLight", 1.0,
         lambda frame: frame.number("distance_to_next_junction") < 5.0 and frame.stands_at_red()),
    Rule("Town15", 0.6, lambda frame: frame.meta["town"] == "Town15"),
    Rule("FarTargetPoint", 0.0,
         lambda frame: bool(np.linalg.norm(frame.targets["target_point"]) > 175.0
                            and abs(frame.targets["target_point"][0]) > 10)),
    Rule("MediumAcceleration", 1.0, _accelerating(15.0)),
    Rule("LowAcceleration", 1.0, _accelerating(12.5)),
    Rule("HighRouteCurvature", 1.0, _bent(0.15)),
    Rule("MediumRouteCurvature", 1.0, _bent(0.075)),
    Rule("Others", 0.1, lambda frame: True),
)  # fmt: skip

# LEAD numbers bad weather and the scenarios in the order of their tests, and then the general rules in this order.
GENERAL = (
    "FarTargetPoint", "Town15", "TargetPointBehindEgo", "OccludedJunction", "EnteringJunction", "CloseToJunction",
    "RedOverheadTrafficLight", "NearUrgentLaneChange", "StopSignHazard", "LargeLateralDeviation", "VehicleHazard",
    "RedEuropeTrafficLight", "RedTrafficLight", "HighAcceleration", "MediumAcceleration", "LowAcceleration",
    "HighRouteCurvature", "MediumRouteCurvature", "Others",
)  # fmt: skip

MINED: dict[str, tuple[bool, tuple[Rule, ...]]] = {  # collection -> whether posttraining's skips apply, rules in order
    "navsim_pretrain": (False, (BAD_WEATHER, *RULES)),
    "navsim_posttrain": (True, (BAD_WEATHER, *RULES)),
    "waymo_pretrain": (False, RULES),
    "waymo_posttrain": (True, RULES),
}


def numbered(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Returns rules in the order of LEAD's bucket numbers (`bucket_identity`), which is not that of their tests."""
    return tuple(sorted(rules, key=lambda rule: GENERAL.index(rule.name) if rule.name in GENERAL else -1))


def bucket_of(rules: Sequence[Rule], frame: MinedFrame, path: str) -> int:
    """Returns the position of the first rule that fits; raises BadData naming the file and a field it lacks."""
    try:
        return next(number for number, rule in enumerate(rules) if rule.fits(frame))
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise BadData(f"file {path}, or the frame's boxes, lacks a valid field: {error!r}") from error
