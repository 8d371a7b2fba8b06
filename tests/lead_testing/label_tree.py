"""One LEAD route written by hand, in memory, whose labels depend on every key that the preparation reads.

Each box says which keys it is there for. Numbers are whole or simple, so that records are the same on any machine.
"""

import json
import lzma
import pickle
from functools import cache
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from lead_testing.bytes_recipe import MemoryTree
from lead_trainer.example_worlds.lead.sensors import las_bytes, radar_bytes
from lead_trainer.example_worlds.lead.verdicts import verdict
from lead_trainer.recipes.lead.prepare_metas import FLAGS, MEASURES, NUMBERS, TEXTS
from lead_trainer.recipes.lead.targets.label_classes import CONE, DOOR_SCENARIO, MESH_SIZES, WARNING

ROUTE = "data/VehicleOpensDoorTwoWays/999_Rep-1_Town03_301_route0_11_04_01_11_59"
FRAMES = 20  # 8 are skipped at either end before posttraining
SIZES = {"image_height": 96, "image_width": 288}  # the pictures lose their lower half
DISTANCES = (3.25, 5.0)  # tp_pop_distance

_BOX = {
    "class": "car", "id": 0, "position": [10.0, 0.0, 0.0], "extent": [2.0, 1.0, 0.7], "yaw": 0.25, "speed": 5.0,
    "brake": 0.0, "num_points": 50, "visible_pixels": 500, "transfuser_semantics_id": 1, "role_name": "background",
    "type_id": "vehicle.tesla.model3", "lane_type_str": "Driving", "num_radar_points": 4,
}  # fmt: skip
_WALKER = {**_BOX, "class": "walker", "transfuser_semantics_id": 4, "extent": [0.2, 0.2, 0.9], "speed": 1.0,
           "type_id": "walker.pedestrian.0001"}  # fmt: skip
_STATIC = {**_BOX, "class": "static", "speed": 0.0, "type_id": "static.prop.mesh",
           "mesh_path": min(name for name in MESH_SIZES if "ParkedVehicles" in name)}  # fmt: skip
_BOXES: list[dict[str, Any]] = [
    {**_BOX, "class": "ego_car", "position": [0.0, 0.0, 0.0]},
    # num_radar_queries, max_num_bbs, min_x_meter … max_y_meter: cars near the edges of the window
    *({**_BOX, "id": 10 + n, "position": [x, y, 0.0], "speed": float(n)}
      for n, (x, y) in enumerate([(56.0, 4.0), (-25.0, -4.0), (20.0, 34.0), (30.0, -33.0)])),
    # min_z, max_z
    {**_BOX, "id": 20, "position": [14.0, 8.0, 3.0]},
    {**_BOX, "id": 21, "position": [14.0, -8.0, -3.0]},
    # vehicle_min_num_lidar_points, vehicle_min_num_visible_pixels
    {**_BOX, "id": 30, "position": [22.0, 8.0, 0.0], "num_points": 3, "visible_pixels": 0},
    {**_BOX, "id": 31, "position": [22.0, -8.0, 0.0], "num_points": 0, "visible_pixels": 3},
    # pedestrian_min_*, scale_pedestrian_bev_semantic_size, pedestrian_bev_min_extent
    {**_WALKER, "id": 40, "position": [8.0, 12.0, 0.0], "num_points": 10, "visible_pixels": 3},
    {**_WALKER, "id": 41, "position": [8.0, -12.0, 0.0], "num_points": 2, "visible_pixels": 30},
    # parking_vehicle_min_*
    {**_STATIC, "id": 50, "position": [16.0, 16.0, 0.0], "num_points": 4, "visible_pixels": 2},
    {**_STATIC, "id": 51, "position": [16.0, -16.0, 0.0], "num_points": 1, "visible_pixels": 8},
    # data_bb_static_types_white_list
    {**_STATIC, "id": 60, "position": [28.0, 2.0, 0.0], "type_id": CONE, "mesh_path": None},
    {**_STATIC, "id": 61, "position": [32.0, 2.0, 0.0], "type_id": WARNING, "mesh_path": None},
    # car_open_door_extra_width, carla_leaderboard_mode: the standing car whose door is open
    {**_BOX, "id": 70, "position": [12.0, 3.0, 0.0], "speed": 0.0, "role_name": "scenario"},
    {**_BOX, "class": "traffic_light", "id": 80, "position": [24.0, 5.0, 0.0], "extent": [1.5, 1.5, 0.5],
     "affects_ego": True, "state": "Red"},
]  # fmt: skip


@cache
def label_tree() -> MemoryTree:
    """Returns the tree; every frame has the same files."""
    files = _frame_files()
    contents = {
        f"{ROUTE}/{folder}/{frame:04d}.{suffix}": data
        for frame in range(FRAMES)
        for (folder, suffix), data in files.items()
    }
    result = verdict(0, failed=False, route_length_m=100.0, duration_s=10.0)
    return MemoryTree({**contents, f"{ROUTE}/results.json": json.dumps(result).encode()})


def _frame_files() -> dict[tuple[str, str], bytes]:
    files = {("bboxes", "pkl"): _packed(_BOXES), ("metas", "pkl"): _packed(_meta()), ("lidar", "laz"): _lidar()}
    for view in ("", "_perturbated"):
        files[f"rgb{view}", "jpg"] = _encoded(".jpg", np.stack([_stripes(192, 288, 16, 40)] * 3, axis=2))
        files[f"semantics{view}", "png"] = _encoded(".png", _stripes(192, 288, 8, 1))
        files[f"depth{view}", "png"] = _encoded(".png", _stripes(48, 72, 4, 9))
        files[f"hdmap{view}", "png"] = _encoded(".png", _stripes(300, 300, 20, 1) % np.uint8(6))
        files[f"radar{view}", "npz"] = radar_bytes([_radar(sensor) for sensor in range(4)])
    return files


def _meta() -> dict[str, Any]:
    meta: dict[str, Any] = dict.fromkeys(TEXTS, "text")
    meta |= dict.fromkeys(FLAGS, False) | dict.fromkeys(NUMBERS, 3) | dict.fromkeys(MEASURES, 0.5)
    meta |= {
        "current_active_scenario_type": DOOR_SCENARIO, "vehicle_opened_door": True, "vehicle_door_side": ["left"],
        "scenario_obstacles_ids": [70], "perturbation_translation": 1.0, "perturbation_rotation": 8.0,
        "pos_global": [100.0, 200.0, 0.5], "route": [[float(n), 0.5] for n in range(10)],
        "future_positions": [[float(n), 0.0, 0.0] for n in range(120)], "future_yaws": [0.0] * 120,
    }  # fmt: skip
    for distance in DISTANCES:
        meta |= {
            f"next_target_points_{distance}": [[100.0 + distance, 200.0, 0.0], [150.0, 200.0, 0.0]],
            f"previous_target_points_{distance}": [[90.0, 200.0, 0.0]],
            f"next_commands_{distance}": [4, 1],
        }
    return meta


def _lidar() -> bytes:
    """Points of two ages, at, below and above the car's height, some of which share a pixel."""
    spots = [(10.1, 2.1, 0.1)] * 7 + [(-20.1, -10.1, 0.1), (50.1, 30.1, 0.1), (30.1, 10.1, -3.1), (30.1, -10.1, 8.1)]
    points = np.array(spots * 2)
    return las_bytes(points, np.repeat(np.array([0, 9], np.uint8), len(spots)))


def _radar(sensor: int) -> npt.NDArray[np.float16]:
    return np.array([[8 + sensor, 2, 0, 3], [16 + sensor, -2, 0, -1]], np.float16)


def _stripes(height: int, width: int, side: int, step: int) -> npt.NDArray[np.uint8]:
    """Returns a pattern of squares."""
    rows, columns = np.arange(height) // side, np.arange(width) // side
    return np.asarray(step * ((rows[:, None] + 2 * columns[None]) % 6), np.uint8)


def _packed(value: object) -> bytes:
    return lzma.compress(pickle.dumps(value, protocol=4))


def _encoded(suffix: str, picture: npt.NDArray[np.uint8]) -> bytes:
    done, data = cv2.imencode(suffix, picture, [cv2.IMWRITE_JPEG_QUALITY, 95] if suffix == ".jpg" else [])
    assert done
    return data.tobytes()
