"""The measurement dict of one frame: what LEAD's expert writes into `metas`, key by key.

Called by `route_files.py`. Every key of the expert's dict is present; what the example world does not use contains
"none" as the expert would (None, -1, False, empty list).
"""

from typing import Any

import numpy as np

from lead_trainer.example_worlds.lead.driving import Ahead
from lead_trainer.example_worlds.lead.episode import Episode
from lead_trainer.example_worlds.lead.geometry import FloatArray, Pose2, wrap_angle
from lead_trainer.example_worlds.lead.labels import Box, is_braking
from lead_trainer.example_worlds.lead.roads import LANE_WIDTH_M
from lead_trainer.example_worlds.lead.target_points import TargetPoints

PAST_STEPS = 41
FUTURE_STEPS = 201
ROUTE_POINTS = 50
ROUTE_START_M = 2.5
WHEELBASE_M = 2.9
MAX_STEER_RAD = 1.22
HAZARD_DECELERATION = -0.5

Meta = dict[str, Any]


def describe(episode: Episode, frame: int, boxes: list[Box], targets: TargetPoints, *, jpeg_quality: int) -> Meta:
    """Returns the meta dict of a frame; `boxes` are the frame's, for the distances and counts in it."""
    step = episode.step_of(frame)
    ego = episode.ego_pose(step)
    noise = np.random.default_rng([step, 5]).normal(0.0, 0.06, 2)
    return {
        **_identity(episode, jpeg_quality),
        **_motion(episode, step, ego, noise),
        **_past(episode, step, ego, noise),
        **_future(episode, step, ego),
        **_control(episode, step, ego),
        **_hazards(episode, step, boxes),
        **_road(episode, step, ego),
        **_scenario(episode, boxes),
        **targets.lists(float(episode.ego_arc[step])),
        "perturbation_translation": float(episode.perturbation[frame, 0]),
        "perturbation_rotation": float(episode.perturbation[frame, 1]),
    }


def _identity(episode: Episode, jpeg_quality: int) -> Meta:
    sunset = episode.scenario.weather.endswith("Sunset")
    return {
        "target_dataset": 1,
        "town": episode.scenario.town,
        "scenario": episode.scenario.name,
        "weather_setting": episode.scenario.weather,
        "weather_parameters": {
            "cloudiness": 80.0 if episode.scenario.weather.startswith("Cloudy") else 10.0,
            "sun_altitude_angle": 15.0 if sunset else 45.0,
        },
        "jpeg_storage_quality": jpeg_quality,
        "visual_visibility": 1,
        "slower_bad_visibility": False,
        "slower_clutterness": False,
        "slower_occluded_junction": False,
        "europe_traffic_light": False,
        "over_head_traffic_light": episode.scenario.signal != "stop_sign",
    }


def _motion(episode: Episode, step: int, ego: Pose2, noise: FloatArray) -> Meta:
    speed = float(episode.ego_speed[step])
    curvature = float(episode.roads.ego_lane.curvature(episode.ego_arc[step]))
    matrix = np.eye(4, dtype=np.float32)
    matrix[:2, :2] = [[np.cos(ego.yaw), -np.sin(ego.yaw)], [np.sin(ego.yaw), np.cos(ego.yaw)]]
    matrix[:2, 3] = ego.xy
    return {
        "speed": speed,
        "accel_x": float(episode.ego_acceleration[step]),
        "accel_y": speed * speed * curvature,
        "accel_z": 9.81,
        "angular_velocity_x": 0.0,
        "angular_velocity_y": 0.0,
        "angular_velocity_z": speed * curvature,
        "pos_global": [ego.x, ego.y, 0.0],
        "noisy_pos_global": [ego.x + float(noise[0]), ego.y + float(noise[1])],
        "theta": float(wrap_angle(ego.yaw)),
        "privileged_yaw": float(wrap_angle(ego.yaw)),
        "ego_matrix": matrix,
        "privileged_acceleration": float(episode.ego_acceleration[step]),
        "privileged_rotation_speed": speed * curvature,
    }


def _past(episode: Episode, step: int, ego: Pose2, noise: FloatArray) -> Meta:
    """Now first, then back in time, in the ego's frame of now."""
    rows = slice(step, step - PAST_STEPS, -1)
    positions = ego.to_local(episode.ego_xy[rows]).astype(np.float32)
    yaws = wrap_angle(episode.ego_yaw[rows] - ego.yaw).astype(np.float32)
    speeds = episode.ego_speed[rows].astype(np.float32)
    return {
        "privileged_past_positions": positions,
        "past_positions": positions + noise.astype(np.float32),
        "past_filtered_state": np.concatenate([positions, yaws[:, None], speeds[:, None]], axis=1),
        "past_speeds": speeds,
        "past_yaws": yaws,
    }


def _future(episode: Episode, step: int, ego: Pose2) -> Meta:
    """Now first, 20 Hz, cut where the recording ends, in the ego's frame of now."""
    rows = slice(step, step + FUTURE_STEPS)
    flat = ego.to_local(episode.ego_xy[rows])
    return {
        "future_positions": np.concatenate([flat, np.zeros((len(flat), 1))], axis=1).astype(np.float32),
        "future_yaws": wrap_angle(episode.ego_yaw[rows] - ego.yaw).astype(np.float32),
        "future_speeds": episode.ego_speed[rows].astype(np.float32),
    }


def _control(episode: Episode, step: int, ego: Pose2) -> Meta:
    arc, lane = float(episode.ego_arc[step]), episode.roads.ego_lane
    acceleration = float(episode.ego_acceleration[step])
    braking = is_braking(episode, step)
    ahead = ego.to_local(lane.at(arc + ROUTE_START_M + np.arange(ROUTE_POINTS))[0])
    speed, limit = float(episode.ego_speed[step]), float(episode.ego_limit[step])
    return {
        "route": ahead.astype(np.float32),
        "changed_route": episode.scenario.swerves,
        "steer": float(np.clip(np.arctan(WHEELBASE_M * lane.curvature(arc + 1.0)) / MAX_STEER_RAD, -1, 1)),
        "throttle": 0.0 if braking else float(np.clip(0.25 + 0.2 * acceleration, 0.0, 0.75)),
        "brake": braking,
        "target_speed": 0.0 if braking and speed < 0.5 else float(np.clip(speed + acceleration, 0.0, limit)),
        "target_speed_limit": limit,
        "speed_limit": 50.0 / 3.6,
        "last_encountered_speed_limit_sign": 50.0,
    }


def _hazards(episode: Episode, step: int, boxes: list[Box]) -> Meta:
    reason = episode.ego_reason[step]
    binding: Ahead | None = reason if episode.ego_acceleration[step] < HAZARD_DECELERATION else None
    if episode.ego_speed[step] < 0.15:
        binding = reason
    kind = binding.kind if binding else ""
    stop_gap = episode.roads.stop_arc_on_ego_lane_m - float(episode.ego_arc[step])
    stop_sign = episode.scenario.signal == "stop_sign"
    walkers = [box for box in boxes if box["class"] == "walker" and box["distance"] < 12.0]
    vehicles = [box for box in boxes if box["class"] == "car"]
    parked = [box for box in boxes if box["class"] == "static_prop_car" and box["distance"] < 30.0]
    speeds = sorted((float(box["speed"]) for box in vehicles), reverse=True)
    behind = [box for box in vehicles if box["position"][0] < 0 and abs(box["position"][1]) < 1.75]
    return {
        "vehicle_hazard": kind == "vehicle",
        "vehicle_affecting_id": binding.actor_id if binding and kind == "vehicle" else None,
        "light_hazard": kind == "light",
        "walker_hazard": kind == "walker",
        "walker_affecting_id": binding.actor_id if binding and kind == "walker" else None,
        "stop_sign_hazard": kind == "stop_sign",
        "stop_sign_close": stop_sign and 0.0 < stop_gap < 20.0,
        "walker_close": bool(walkers),
        "walker_close_id": walkers[0]["id"] if walkers else None,
        "speed_reduced_by_obj_type": kind or None,
        "speed_reduced_by_obj_id": binding.actor_id if binding else None,
        "speed_reduced_by_obj_distance": binding.gap_m if binding else None,
        "does_emergency_brake_for_pedestrians": kind == "walker" and bool(episode.ego_acceleration[step] < -4.0),
        "traffic_light_state": episode.lights[step].ego,
        "num_parking_vehicles_in_proximity": len(parked),
        "average_traffic_speed": float(np.mean(speeds)) if speeds else None,
        "max_traffic_speed": speeds[0] if speeds else None,
        "second_highest_speed": speeds[1] if len(speeds) > 1 else None,
        "second_highest_speed_limit": 50.0,
        "rear_danger_8": any(box["position"][0] > -8.0 for box in behind),
        "rear_danger_16": any(box["position"][0] > -16.0 for box in behind),
        "dist_to_pedestrian": _nearest(boxes, lambda box: box["class"] == "walker"),
        "dist_to_biker": _nearest(boxes, lambda box: box.get("base_type") == "bicycle"),
    }


def _nearest(boxes: list[Box], chosen: Any) -> float | None:
    distances = [float(box["distance"]) for box in boxes if chosen(box)]
    return min(distances) if distances else None


def _road(episode: Episode, step: int, ego: Pose2) -> Meta:
    arc, roads = float(episode.ego_arc[step]), episode.roads
    to_stop = roads.stop_arc_on_ego_lane_m - arc
    centre = float(np.linalg.norm(roads.crossing.xy - ego.xy))
    inside = centre < 10.5
    curvature = float(np.max(np.abs(roads.ego_lane.curvature(arc + np.arange(0.0, 20.0)))))
    return {
        "distance_to_next_junction": max(0.0, to_stop) if to_stop > 0 or inside else None,
        "dist_to_junction": max(0.0, to_stop) if to_stop > 0 else None,
        "is_junction": inside,
        "is_intersection": inside,
        "junction_id": 3 if inside else -1,
        "ego_lane_id": -1,
        "road_id": 12,
        "lane_id": -1,
        "next_road_ids": [13],
        "next_next_road_ids_ego": [14],
        "lane_change_str": "NONE",
        "lane_type_str": "Driving",
        "left_lane_marking_color_str": "Yellow",
        "left_lane_marking_type_str": "Broken",
        "right_lane_marking_color_str": "White",
        "right_lane_marking_type_str": "Solid",
        "ego_lane_width": LANE_WIDTH_M,
        "target_lane_width": LANE_WIDTH_M,
        "route_curvature": curvature,
        "reduce_speed_high_route_curvature": curvature > 0.04,
        "dist_to_road_discontinuity": None,
        "reduce_speed_discontinuous_road": False,
        "distance_to_intersection_index_ego": int(max(0.0, to_stop) * 10),
        "route_left_length": roads.ego_lane.length_m - arc,
        "distance_ego_to_route": 0.0,
        "signed_dist_to_lane_change": None,
    }


def _scenario(episode: Episode, boxes: list[Box]) -> Meta:
    hazard = episode.scenario.hazard
    kinds = {"construction": ("cone", "warning"), "parked_obstacle": ("car",)}.get(hazard, ())
    obstacles = [a.actor_id for a in episode.actors if not a.moves and a.kind in kinds]
    actors = {"walker": [90], "hard_brake": [20], "bicycles": [71, 72, 73]}.get(hazard, [])
    to_obstacle = _nearest(boxes, lambda box: box["id"] in obstacles)
    return {
        "current_active_scenario_type": episode.scenario.name,
        "previous_active_scenario_type": None,
        "scenario_obstacles_ids": obstacles,
        "scenario_actors_ids": actors,
        "scenario_obstacles_convex_hull": [],
        "dist_to_construction_site": to_obstacle if hazard == "construction" else None,
        "dist_to_parked_obstacle": to_obstacle if hazard == "parked_obstacle" else None,
        "dist_to_accident_site": None,
        "dist_to_vehicle_opens_door": None,
        "dist_to_cutin_vehicle": None,
        "construction_obstacle_two_ways_stuck": False,
        "accident_two_ways_stuck": False,
        "parked_obstacle_two_ways_stuck": False,
        "vehicle_opens_door_two_ways_stuck": False,
        "vehicle_opened_door": False,
        "vehicle_door_side": None,
        "cut_in_actors_ids": [],
        "brake_cutin": False,
        "emergency_brake_for_special_vehicle": False,
        "num_dangerous_adversarial": 0,
        "num_safe_adversarial": 0,
        "num_ignored_adversarial": 0,
        "rear_adversarial_id": -1,
        "max_adversarial_speed": None,
    }
