"""Box labels of one view: which annotated boxes count, with which class and size, as LEAD's (max_num_bbs, 9) array.

Called by the preparation; the rows are in BEV pixels so that the detector's targets follow without the ego frame.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lead_trainer.recipes.lead.prepare_keys import PreparationKeys
from lead_trainer.recipes.lead.targets.label_classes import (
    BIKES,
    BLOCKING_SCENARIOS,
    BOX_COLUMNS,
    DOOR_SCENARIO,
    EMERGENCY,
    MESH_SIZES,
    PARKING_SCENARIOS,
    PROP_SIZES,
    SEMANTIC_PEDESTRIAN,
    SEMANTIC_VEHICLE,
    BoxClass,
    BoxColumn,
)
from lead_trainer.recipes.lead.targets.view import View

Box = Mapping[str, Any]
BoxRows = npt.NDArray[np.float32]
STANDING_MPS = 0.1
KINDS = {
    "walker": BoxClass.WALKER,
    "traffic_light": BoxClass.TRAFFIC_LIGHT,
    "stop_sign": BoxClass.STOP_SIGN,
}  # of a box's class, where it is no vehicle


@dataclass(frozen=True)
class SceneFacts:
    """What the labels need to know of the frame beside its boxes."""

    scenario_type: str
    obstacle_ids: frozenset[int]
    door_open: bool
    door_left: bool
    overhead_light: bool
    europe_light: bool


def box_rows(boxes: Sequence[Box], scene: SceneFacts, view: View, keys: PreparationKeys) -> BoxRows:
    """Returns (max_num_bbs, 9) rows in stored order, zero-padded; x, y, w, h in pixels, w and h half extents."""
    rows = [row for box in boxes if (row := _row(box, scene, view, keys)) is not None]
    padded = np.zeros((keys.max_num_bbs, BOX_COLUMNS), np.float32)
    if rows:
        kept = rows[: keys.max_num_bbs]
        padded[: len(kept)] = kept
    return padded


def _row(box: Box, scene: SceneFacts, view: View, keys: PreparationKeys) -> BoxRows | None:
    """Returns one box as a row in pixels, or None when it is no target."""
    if box["class"] == "ego_car" or is_hidden(box, keys) or not _matters(box, keys):
        return None
    row = np.zeros(BOX_COLUMNS, np.float32)
    row[BoxColumn.X : BoxColumn.Y + 1] = view.points(np.array([box["position"][:2]]))[0]
    if not _inside(row, float(box["position"][2]), keys):
        return None
    row[BoxColumn.W : BoxColumn.H + 1] = box_half_extents(box)
    row[BoxColumn.YAW] = view.angle(box["yaw"])
    row[BoxColumn.RADAR_POINTS] = box.get("num_radar_points", -1)
    row[BoxColumn.CLASS] = _class(box, scene) if keys.carla_leaderboard_mode else _plain_class(box)
    if box["class"] in ("car", "walker"):
        row[BoxColumn.VELOCITY] = box["speed"]
    if box["class"] == "car":
        row[BoxColumn.BRAKE] = 0.0 if np.isnan(box["brake"]) else box["brake"]
    if has_open_door(box, scene):
        half = keys.car_open_door_extra_width / 2
        row[BoxColumn.H] = float(row[BoxColumn.H]) + half
        row[BoxColumn.Y] = float(row[BoxColumn.Y]) + (half if scene.door_left else -half)
    row[BoxColumn.X : BoxColumn.Y + 1] -= np.array([keys.min_x_meter, keys.min_y_meter], np.float32)
    row[BoxColumn.X : BoxColumn.H + 1] *= np.float32(keys.pixels_per_meter)
    in_grid = 0 <= row[BoxColumn.X] < keys.bev_width and 0 <= row[BoxColumn.Y] < keys.bev_height
    return row if in_grid else None  # an opened door may have moved the centre out


def is_hidden(box: Box, keys: PreparationKeys) -> bool:
    """Returns whether too few LiDAR points and too few pixels show a box; -1 means not counted, and keeps it."""
    points, pixels, kind = box.get("num_points", -1), box.get("visible_pixels", -1), box.get("transfuser_semantics_id")
    limits: list[tuple[int, int]] = []
    if kind == SEMANTIC_PEDESTRIAN:
        limits.append((keys.pedestrian_min_num_lidar_points, keys.pedestrian_min_num_visible_pixels))
    if kind == SEMANTIC_VEHICLE:
        limits.append((keys.vehicle_min_num_lidar_points, keys.vehicle_min_num_visible_pixels))
        if box["class"] == "static":
            limits.append((keys.parking_vehicle_min_num_lidar_points, keys.parking_vehicle_min_num_visible_pixels))
    return any(0 <= points < fewest_points and 0 <= pixels < fewest_pixels for fewest_points, fewest_pixels in limits)


def box_half_extents(box: Box) -> tuple[float, float]:
    """Returns half length and width: the fixed size of known props and meshes, else the annotated one."""
    size = PROP_SIZES.get(box.get("type_id", ""), (box["extent"][0], box["extent"][1]))
    return MESH_SIZES.get(box.get("mesh_path") or "", size)


def is_parked_mesh(box: Box) -> bool:
    """Returns whether a static box is the mesh of a parked car."""
    return box["class"] == "static" and "ParkedVehicles" in (box.get("mesh_path") or "")


def is_standing_scenario_car(box: Box) -> bool:
    """Returns whether a box is a standing car that the scenario placed."""
    placed = box["class"] == "car" and "scenario" in box.get("role_name", "")
    return placed and bool(box["speed"] < STANDING_MPS)


def has_open_door(box: Box, scene: SceneFacts) -> bool:
    """Returns whether a box is the standing car whose door is open."""
    is_door_car = scene.scenario_type == DOOR_SCENARIO and scene.door_open and is_standing_scenario_car(box)
    return is_door_car and box["id"] in scene.obstacle_ids


def _matters(box: Box, keys: PreparationKeys) -> bool:
    """Lights and signs count while they stop the ego; static things only if listed or parked."""
    kind = box["class"]
    if kind == "traffic_light":
        return bool(box["affects_ego"]) and box["state"] != "Green"
    if kind == "stop_sign":
        return bool(box["affects_ego"])
    if kind == "static" and "type_id" in box:
        return box["type_id"] in keys.data_bb_static_types_white_list or is_parked_mesh(box)
    return True


def _inside(row: BoxRows, z: float, keys: PreparationKeys) -> bool:
    in_x = keys.min_x_meter < row[BoxColumn.X] < keys.max_x_meter
    in_y = keys.min_y_meter < row[BoxColumn.Y] < keys.max_y_meter
    return bool(in_x and in_y and keys.min_z < z < keys.max_z)


def _plain_class(box: Box) -> BoxClass:
    """Returns the detection class beside real data, which ignores a car's role in its scenario."""
    type_id = box.get("type_id")
    if type_id in BIKES:
        return BoxClass.BIKER
    return BoxClass.OBSTACLE if type_id in PROP_SIZES else KINDS.get(box["class"], BoxClass.VEHICLE)


def _class(box: Box, scene: SceneFacts) -> BoxClass:
    """Returns the detection class in leaderboard mode; later rules win, as in LEAD."""
    kind, type_id = box["class"], box.get("type_id")
    label = BoxClass.PARKING if kind in ("static", "static_prop_car") else KINDS.get(kind, BoxClass.VEHICLE)
    if kind == "car" and type_id in EMERGENCY and "scenario" in box.get("role_name", ""):
        label = BoxClass.SPECIAL
    if type_id in PROP_SIZES:
        label = BoxClass.OBSTACLE
    if is_parked_mesh(box):
        label = BoxClass.PARKING
    if label != BoxClass.SPECIAL and is_standing_scenario_car(box):
        label = _standing_class(box, scene, label)
    return BoxClass.BIKER if type_id in BIKES else label


def _standing_class(box: Box, scene: SceneFacts, label: BoxClass) -> BoxClass:
    """Returns the class of a standing scenario car: part of the obstacle, parked, or still a vehicle."""
    is_obstacle = box["id"] in scene.obstacle_ids
    if scene.scenario_type == DOOR_SCENARIO and is_obstacle:
        return BoxClass.OBSTACLE if scene.door_open else BoxClass.PARKING
    if scene.scenario_type in BLOCKING_SCENARIOS and is_obstacle:
        return BoxClass.OBSTACLE
    if scene.scenario_type in PARKING_SCENARIOS and box["lane_type_str"] == "Parking":
        return BoxClass.PARKING
    return label
