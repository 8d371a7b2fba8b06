"""The bounding boxes of one frame, as LEAD's expert lists them.

Called by `route_files.py`. Positions and headings are in the ego's frame; the list starts with the ego and goes by
distance.
"""

from typing import Any

import numpy as np

from lead_trainer.example_worlds.lead.actors import SEMANTIC_CLASS, Actor
from lead_trainer.example_worlds.lead.episode import EGO_EXTENT, Episode
from lead_trainer.example_worlds.lead.geometry import FloatArray, Pose2, wrap_angle

REACH_M = 70.0
FUTURE_STEPS = 41
LIGHT_EXTENT = (1.5, 1.5, 0.5)
STOP_EXTENT = (1.2, 1.2, 0.5)
LIGHT_REACH_M = 45.0
_TYPE_ID = {
    "car": "vehicle.lincoln.mkz_2020",
    "van": "vehicle.mercedes.sprinter",
    "bicycle": "vehicle.bh.crossbike",
    "cone": "static.prop.constructioncone",
    "warning": "static.prop.trafficwarning",
    "parked_mesh": "static.prop.mesh",
}

_PARKED_MESH = "/Game/Carla/Static/Car/4Wheeled/ParkedVehicles/TeslaM3/SM_TeslaM3_parked.SM_TeslaM3_parked"

Box = dict[str, Any]


def list_boxes(
    episode: Episode, step: int, lidar_points: dict[int, int], radar_points: dict[int, int], visible: dict[int, int]
) -> list[Box]:
    """Returns every box of a frame; the three dicts count sensor returns and pixels per actor id."""
    ego = episode.ego_pose(step)
    boxes = []
    for actor in episode.actors:
        if actor.kind in ("building", "tree", "pole"):
            continue
        pose = actor.pose(step)
        if float(np.linalg.norm(pose.xy - ego.xy)) > REACH_M:
            continue
        box = _common(pose, actor.extent, ego, actor.actor_id, SEMANTIC_CLASS[actor.kind])
        box["num_points"] = lidar_points.get(actor.actor_id, 0)
        box["visible_pixels"] = visible.get(actor.actor_id, 0)
        boxes.append(_described(box, actor, episode, step, radar_points.get(actor.actor_id, 0)))
    boxes += _signals(episode, step, ego)
    return [_ego(episode, step, ego), *sorted(boxes, key=lambda box: float(box["distance"]))]


def _matrix(pose: Pose2, height: float) -> list[list[float]]:
    cos, sin = float(np.cos(pose.yaw)), float(np.sin(pose.yaw))
    return [[cos, -sin, 0.0, pose.x], [sin, cos, 0.0, pose.y], [0.0, 0.0, 1.0, height], [0.0, 0.0, 0.0, 1.0]]


def _common(pose: Pose2, extent: tuple[float, float, float], ego: Pose2, actor_id: int, semantic: int) -> Box:
    position = ego.to_local(np.array([pose.x, pose.y, extent[2]]))
    return {
        "class": "",
        "transfuser_semantics_id": semantic,
        "extent": list(extent),
        "position": [float(value) for value in position],
        "yaw": float(wrap_angle(pose.yaw - ego.yaw)),
        "distance": float(np.linalg.norm(position)),
        "id": actor_id,
        "matrix": _matrix(pose, extent[2]),
    }


def _ego(episode: Episode, step: int, ego: Pose2) -> Box:
    box = _common(ego, EGO_EXTENT, ego, 1, 0)
    return box | {
        "class": "ego_car",
        "position": [0.0, 0.0, 0.0],
        "distance": 0.0,
        "matrix": _matrix(ego, 0.0),
        "num_points": -1,
        "visible_pixels": -1,
        "speed": float(episode.ego_speed[step]),
        "brake": float(is_braking(episode, step)),
    }


def is_braking(episode: Episode, step: int) -> bool:
    """Returns whether the ego brakes at a step: it slows on purpose, or is held at standstill."""
    slowing = episode.ego_acceleration[step] < -0.4
    return bool(slowing or (episode.ego_speed[step] < 0.15 and episode.ego_acceleration[step] < 0.3))


def _future(actor: Actor, ego: Pose2, step: int, steps: int) -> tuple[FloatArray, FloatArray]:
    last = min(step + FUTURE_STEPS, steps)
    if not actor.moves:
        count = last - step
        return np.repeat(ego.to_local(actor.xy), count, axis=0), np.repeat(wrap_angle(actor.yaw - ego.yaw), count)
    return ego.to_local(actor.xy[step:last]), wrap_angle(actor.yaw[step:last] - ego.yaw)


def _described(box: Box, actor: Actor, episode: Episode, step: int, radar_points: int) -> Box:
    if actor.kind == "parked_car":
        return box | {"class": "static_prop_car"}
    if actor.kind in ("cone", "warning", "parked_mesh"):
        mesh = _PARKED_MESH if actor.kind == "parked_mesh" else None
        return box | {"class": "static", "type_id": _TYPE_ID[actor.kind], "mesh_path": mesh, "speed": 0.0}
    speed, yaw = actor.speed_at(step), box["yaw"]
    positions, yaws = _future(actor, episode.ego_pose(step), step, len(episode.lights))
    box |= {
        "speed": speed,
        "num_radar_points": radar_points,
        "role_name": actor.role,
        "ego_velocity": [speed * float(np.cos(yaw)), speed * float(np.sin(yaw)), 0.0],
        "future_positions": positions.astype(np.float16),
        "future_yaws": yaws.astype(np.float16),
    }
    if actor.kind == "walker":
        return box | {"class": "walker"}
    brake = actor.brake_at(step)
    return box | {
        "class": "car",
        "transfuser_semantics_id": 1,
        "next_action": None,
        "vehicle_cuts_in": False,
        "road_id": 12,
        "lane_id": -1,
        "lane_type_str": "Driving",
        "base_type": "bicycle" if actor.kind == "bicycle" else "car",
        "type_id": _TYPE_ID[actor.kind],
        "brake": brake,
        "steer": 0.0,
        "throttle": 0.0 if brake > 0 else 0.3,
        "speed_limit": 50.0,
    }


def _signals(episode: Episode, step: int, ego: Pose2) -> list[Box]:
    """The light or stop sign that the ego must obey, as the area on its lane where it must stop."""
    gap = episode.roads.stop_arc_on_ego_lane_m - float(episode.ego_arc[step])
    if not 0.0 < gap < LIGHT_REACH_M:
        return []
    pose = episode.roads.ego_lane.pose(episode.roads.stop_arc_on_ego_lane_m)
    if episode.scenario.signal == "stop_sign":
        return [_common(pose, STOP_EXTENT, ego, 110, 0) | {"class": "stop_sign", "affects_ego": True}]
    light = _common(pose, LIGHT_EXTENT, ego, 95, 3)
    return [
        light
        | {
            "class": "traffic_light",
            "state": episode.lights[step].ego,
            "affects_ego": True,
            "distance_to_physical_traffic_light": gap + 19.0,
            "dummy_traffic_light_bounding_box": False,
            "same_lane_as_ego": True,
            "is_over_head_traffic_light": True,
            "is_europe_traffic_light": False,
        }
    ]
