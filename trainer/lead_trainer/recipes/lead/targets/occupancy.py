"""The BEV occupancy plane of one view: annotated boxes drawn as filled rectangles and hulls, in LEAD's order.

Called by the preparation. Drawn on the whole +-128 m grid, as hulls may reach into the window from outside, then cut.
"""

from collections import defaultdict
from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.recipes.lead.prepare_keys import PreparationKeys
from lead_trainer.recipes.lead.targets.boxes import (
    Box,
    SceneFacts,
    has_open_door,
    is_parked_mesh,
    is_standing_scenario_car,
)
from lead_trainer.recipes.lead.targets.label_classes import (
    BIKES,
    BLOCKING_SCENARIOS,
    CONE,
    DOOR_SCENARIO,
    EMERGENCY,
    MESH_SIZES,
    PARKING_SCENARIOS,
    PROP_SIZES,
    WARNING,
    Occupancy,
)
from lead_trainer.recipes.lead.targets.view import View

GRID_HALF_M = 128.0
DRAWN = ("car", "walker", "static", "static_prop_car", "traffic_light")
CONSTRUCTION_REACH_M = 24.0  # a hull further apart than this is not one site
OBSTACLE_REACH_M = 48.0
MIN_CONE_CORNERS = 24

Corners = npt.NDArray[np.int32]
Plane = npt.NDArray[np.uint8]


def occupancy_plane(boxes: Sequence[Box], scene: SceneFacts, view: View, keys: PreparationKeys) -> Plane:
    """Returns the (bev_height, bev_width) plane of Occupancy classes; rows along y, columns along x."""
    scale = keys.pixels_per_meter
    side = int(2 * GRID_HALF_M * scale)
    grid = np.zeros((side, side), np.uint8)
    hulls: dict[str, list[Corners]] = defaultdict(list)
    for box in boxes:
        corners = _corners(box, scene, view, keys) if box["class"] in DRAWN else None
        if corners is None:
            continue
        label, group = _label(box, scene, keys)
        if group:
            hulls[group].append(corners)
        if label is not None and not _is_hidden(box, keys):
            cv2.fillPoly(grid, [corners], int(label))
    _draw_hulls(grid, hulls, scale)
    return occupancy_window(grid, keys)


def occupancy_window(grid: Plane, keys: PreparationKeys) -> Plane:
    """Returns the window of the BEV grid out of a plane of the whole +-128 m."""
    scale = keys.pixels_per_meter
    row, column = (int((GRID_HALF_M + edge) * scale) for edge in (keys.min_y_meter, keys.min_x_meter))
    return grid[row : row + keys.bev_height, column : column + keys.bev_width].copy()


def _corners(box: Box, scene: SceneFacts, view: View, keys: PreparationKeys) -> Corners | None:
    """Returns the four corners of a box in grid pixels, or None when its centre is off the grid."""
    scale = keys.pixels_per_meter
    x, y = view.points(np.array([box["position"][:2]]))[0]
    column, row = (x + GRID_HALF_M) * scale, (y + GRID_HALF_M) * scale
    side = 2 * GRID_HALF_M * scale
    if not (0 <= column < side and 0 <= row < side):
        return None
    is_small = box["class"] == "walker" or box.get("type_id") in BIKES
    smallest = keys.pedestrian_bev_min_extent if is_small else 0.0
    half_x, half_y = (max(extent, smallest) for extent in box["extent"][:2])
    if has_open_door(box, scene):
        half = keys.car_open_door_extra_width / 2
        half_y += half
        row += (half if scene.door_left else -half) * scale
    if "mesh_path" in box:
        half_x, half_y = MESH_SIZES.get(box["mesh_path"] or "", (half_x, half_y))
    else:
        half_x, half_y = PROP_SIZES.get(box.get("type_id", ""), (half_x, half_y))
    grow = 2 * scale * (keys.scale_pedestrian_bev_semantic_size if is_small else 1.0)
    rectangle = ((column, row), (half_x * grow, half_y * grow), float(np.rad2deg(view.angle(box["yaw"]))))
    return np.asarray(cv2.boxPoints(rectangle)).astype(np.int32)


def _label(box: Box, scene: SceneFacts, keys: PreparationKeys) -> tuple[Occupancy | None, str]:
    """Returns the class a box is drawn in (None: not drawn) and the hull its corners join."""
    kind = box["class"]
    if kind == "car":
        return _car_label(box, scene) if keys.carla_leaderboard_mode else _plain_car_label(box)
    if kind == "walker":
        return Occupancy.WALKER, ""
    if kind == "static_prop_car":
        return Occupancy.PARKING, ""
    if kind == "traffic_light":
        return _light_label(box, scene)
    type_id = box.get("type_id", "")
    if type_id in keys.data_bb_static_types_white_list:
        site = {CONE: "cones", WARNING: "warnings"} if keys.carla_leaderboard_mode else {}
        return Occupancy.OBSTACLE, site.get(type_id, "")
    if not keys.carla_leaderboard_mode:
        return None, ""
    if type_id in EMERGENCY:
        return Occupancy.SPECIAL, "obstacle"
    return (Occupancy.PARKING, "") if is_parked_mesh(box) else (None, "")


def _plain_car_label(box: Box) -> tuple[Occupancy, str]:
    """Returns the label of a car beside real data, whatever it is in its scenario."""
    return (Occupancy.BIKER if box.get("type_id", "") in BIKES else Occupancy.VEHICLE), ""


def _car_label(box: Box, scene: SceneFacts) -> tuple[Occupancy, str]:
    type_id, is_obstacle = box.get("type_id", ""), box["id"] in scene.obstacle_ids
    blocks = scene.scenario_type in BLOCKING_SCENARIOS and is_obstacle
    if type_id in EMERGENCY:
        return (Occupancy.OBSTACLE, "obstacle") if blocks else (Occupancy.SPECIAL, "")
    if type_id in BIKES:
        return Occupancy.BIKER, ""
    if not is_standing_scenario_car(box):
        return Occupancy.VEHICLE, ""
    if blocks:
        return Occupancy.OBSTACLE, "obstacle"
    if scene.scenario_type == DOOR_SCENARIO and is_obstacle:
        return (Occupancy.OBSTACLE, "obstacle") if scene.door_open else (Occupancy.PARKING, "")
    if scene.scenario_type in PARKING_SCENARIOS and box["lane_type_str"] == "Parking":
        return Occupancy.PARKING, ""
    return Occupancy.VEHICLE, ""


def _light_label(box: Box, scene: SceneFacts) -> tuple[Occupancy | None, str]:
    if not box["affects_ego"]:
        return None, ""
    if box["state"] not in ("Red", "Yellow"):
        return Occupancy.GREEN, "green"
    if scene.overhead_light or scene.europe_light:
        return Occupancy.RED_NOT_NORMAL, "red_not_normal"
    return Occupancy.RED, "red"


def _is_hidden(box: Box, keys: PreparationKeys) -> bool:
    """Returns whether a box is not drawn because too little of it shows; by class here, by semantics for box labels."""
    limits = {
        "walker": (keys.pedestrian_min_num_lidar_points, keys.pedestrian_min_num_visible_pixels),
        "car": (keys.vehicle_min_num_lidar_points, keys.vehicle_min_num_visible_pixels),
        "static": (keys.parking_vehicle_min_num_lidar_points, keys.parking_vehicle_min_num_visible_pixels),
        "static_prop_car": (keys.parking_vehicle_min_num_lidar_points, keys.parking_vehicle_min_num_visible_pixels),
    }
    if box["class"] not in limits:
        return False
    points, pixels = limits[box["class"]]
    return bool(0 <= box["num_points"] < points and 0 <= box["visible_pixels"] < pixels)


def _draw_hulls(grid: Plane, hulls: dict[str, list[Corners]], scale: float) -> None:
    """Fills the hulls of a construction site, of an obstacle, and of the most important light, in this order."""
    cones, warnings = hulls["cones"], hulls["warnings"]
    if warnings and 4 * len(cones) >= MIN_CONE_CORNERS:
        _fill_hull(grid, cones + warnings, Occupancy.OBSTACLE, CONSTRUCTION_REACH_M * scale)
    if hulls["obstacle"]:
        _fill_hull(grid, hulls["obstacle"], Occupancy.OBSTACLE, OBSTACLE_REACH_M * scale)
    lights = (
        ("red_not_normal", Occupancy.RED_NOT_NORMAL),
        ("red", Occupancy.RED),
        ("green", Occupancy.GREEN),
    )
    for group, label in lights:
        if hulls[group]:
            _fill_hull(grid, hulls[group], label, np.inf)
            return


def _fill_hull(grid: Plane, corners: list[Corners], label: Occupancy, reach: float) -> None:
    points = np.concatenate(corners)
    distances = np.linalg.norm(points - points.mean(axis=0), axis=1)
    if np.all(distances <= reach):
        cv2.fillPoly(grid, [cv2.convexHull(points)], int(label))
