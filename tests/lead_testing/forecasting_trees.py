"""Small generated trees of the forecasting benchmarks, in the documented formats: an Argoverse 2 one, a nuScenes one.

Every number is a pure function of the arguments. Motion is smooth: each agent drives with a speed, an acceleration and
a yaw rate of its own.
"""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import feather

STEP_S = 0.1


def drive(seed: int, times: np.ndarray[Any, Any], start: tuple[float, float]) -> tuple[Any, Any, Any]:
    """Returns positions (S, 2), headings (S,) and velocities (S, 2) of one agent."""
    random = np.random.default_rng(seed)
    speed, acceleration, yaw_rate, yaw = (
        random.uniform(2, 12), random.uniform(-0.3, 0.6), random.uniform(-0.08, 0.08), random.uniform(-3, 3)
    )  # fmt: skip
    fine = np.linspace(0.0, times[-1], 4000)
    heading = yaw + yaw_rate * fine
    velocity = np.maximum(speed + acceleration * fine, 0.0)[:, None] * np.stack([np.cos(heading), np.sin(heading)], 1)
    path = np.concatenate([[[0.0, 0.0]], np.cumsum(velocity[:-1] * np.diff(fine)[:, None], axis=0)])
    xy = np.stack([np.interp(times, fine, path[:, axis]) for axis in (0, 1)], axis=1) + np.array(start)
    v = np.stack([np.interp(times, fine, velocity[:, axis]) for axis in (0, 1)], axis=1)
    return xy, np.interp(times, fine, heading), v


def write_argoverse2_tree(root: Path, scenarios: dict[str, int], *, steps: int = 110, tracks: int = 5) -> list[str]:
    """Writes that many scenarios a split; returns their folders. Track 3 is a fragment, track 4 stands still."""
    written = []
    for split, count in scenarios.items():
        for number in range(count):
            name = f"{split}-{number:04d}-scenario"
            folder = root / split / name
            folder.mkdir(parents=True)
            seed = 1000 * sorted(scenarios).index(split) + 10 * number
            seen_steps = 50 if split == "test" else steps
            (folder / f"scenario_{name}.parquet").write_bytes(scenario_parquet(name, seed, seen_steps, tracks))
            (folder / f"log_map_archive_{name}.json").write_text(json.dumps(argoverse2_map(seed)))
            written.append(f"{split}/{name}")
    return written


def write_sensor_log(folder: Path, *, steps: int = 80, tracks: int = 3) -> None:
    """Writes a log's cuboids, the poses of a vehicle that stands at (500, -300), and the map around it."""
    rows: list[dict[str, Any]] = []
    stamps = [int(1e9 * STEP_S * step) for step in range(steps)]
    upright = {"qw": 1.0, "qx": 0.0, "qy": 0.0, "qz": 0.0}
    for track in range(tracks):
        xy, heading, _ = drive(track, np.arange(steps) * STEP_S, (12.0 * track, -7.0 * track))
        for stamp, (x, y), yaw in zip(stamps, xy, heading, strict=True):
            turned = {**upright, "qw": np.cos(yaw / 2), "qz": np.sin(yaw / 2)}
            place = {"tx_m": x, "ty_m": y, "tz_m": 0.0}
            rows.append({"timestamp_ns": stamp, "track_uuid": f"t{track}", "category": "BUS", **turned, **place})
    (folder / "map").mkdir(parents=True)
    feather.write_feather(pa.Table.from_pylist(rows), folder / "annotations.feather")
    poses = [{"timestamp_ns": stamp, **upright, "tx_m": 500.0, "ty_m": -300.0, "tz_m": 0.0} for stamp in stamps]
    feather.write_feather(pa.Table.from_pylist(poses), folder / "city_SE3_egovehicle.feather")
    (folder / f"map/log_map_archive_{folder.name}.json").write_text(json.dumps(argoverse2_map(0)))


def scenario_parquet(name: str, seed: int, steps: int, tracks: int) -> bytes:
    """Returns one scenario; the focal track is `focal`."""
    rows: dict[str, list[Any]] = {}
    times = np.arange(steps) * STEP_S
    for track in range(tracks):
        xy, heading, velocity = drive(seed + track, times, (500.0 + 12 * track, -300.0 - 7 * track))
        if track == 4:
            xy, velocity = np.repeat(xy[:1], steps, 0), np.zeros_like(velocity)
        present = range(30, min(80, steps)) if track == 3 else range(steps)
        for step in present:
            state = {
                "observed": step < 50, "track_id": "focal" if track == 0 else f"10{track}",
                "object_type": ("vehicle", "bus", "pedestrian", "cyclist", "static")[track % 5],
                "object_category": (3, 2, 1, 0, 1)[track % 5], "timestep": step,
                "position_x": xy[step, 0], "position_y": xy[step, 1], "heading": heading[step],
                "velocity_x": velocity[step, 0], "velocity_y": velocity[step, 1], "scenario_id": name,
                "start_timestamp": 0.0, "end_timestamp": 1e9 * times[-1], "num_timestamps": 110,
                "focal_track_id": "focal", "city": "austin", "map_id": 7, "slice_id": "slice",
            }  # fmt: skip
            for key, value in state.items():
                rows.setdefault(key, []).append(value)
    sink = io.BytesIO()
    pq.write_table(pa.table(rows), sink)
    return sink.getvalue()


def argoverse2_map(seed: int) -> dict[str, Any]:
    """Returns three lanes, a crossing and a drivable area around (500, -300)."""

    def line(*points: tuple[float, float]) -> list[dict[str, float]]:
        return [{"x": x, "y": y, "z": 0.0} for x, y in points]

    lanes = {}
    for number in range(3):
        y = -300.0 + 4 * number + seed % 3
        lanes[str(number)] = {
            "id": number, "is_intersection": number == 2, "lane_type": ("VEHICLE", "BIKE", "VEHICLE")[number],
            "centerline": line((450.0, y), (500.0, y + 1), (560.0, y)),
            "left_lane_boundary": line((450.0, y + 2), (560.0, y + 2)), "left_lane_mark_type": "NONE",
            "right_lane_boundary": line((450.0, y - 2), (560.0, y - 2)), "right_lane_mark_type": "NONE",
            "predecessors": [], "successors": [], "left_neighbor_id": None, "right_neighbor_id": None,
        }  # fmt: skip
    return {
        "lane_segments": lanes,
        "pedestrian_crossings": {"9": {"id": 9, "edge1": line((495, -310), (495, -290)),
                                       "edge2": line((498, -310), (498, -290))}},
        "drivable_areas": {"8": {"id": 8, "area_boundary": line((450, -320), (560, -320), (560, -280), (450, -280))}},
    }  # fmt: skip


NUSCENES_LOCATION = "singapore-onenorth"
NUSCENES_SCENES = ("scene-0061", "scene-0103", "scene-0553")  # of the mini set; the second is for validation
_CATEGORIES = ("vehicle.car", "vehicle.truck", "human.pedestrian.adult", "vehicle.car")


def write_nuscenes_tree(root: Path, *, keyframes: int = 20) -> None:
    """Writes the mini set's tables, map expansion and challenge agents; the fourth agent is seen in the middle only."""
    tables: dict[str, list[Any]] = {name: [] for name in (
        "attribute", "calibrated_sensor", "category", "ego_pose", "instance", "log", "map", "sample",
        "sample_annotation", "sample_data", "scene", "sensor", "visibility")}  # fmt: skip
    tables["visibility"] = [{"token": "4", "level": "v80-100", "description": ""}]
    tables["category"] = [{"token": f"c{n}", "name": name, "description": ""} for n, name in enumerate(_CATEGORIES[:3])]
    tables["log"] = [{"token": "log", "logfile": "n000", "vehicle": "n000", "date_captured": "2018-01-01",
                      "location": NUSCENES_LOCATION}]  # fmt: skip
    tables["map"] = [{"token": "map", "log_tokens": ["log"], "category": "semantic_prior", "filename": "maps/none.png"}]
    listed: dict[str, list[str]] = {}
    for number, scene in enumerate(NUSCENES_SCENES):
        listed[scene] = _write_scene(tables, scene, 100 * number, keyframes)
    folder = root / "v1.0-mini"
    folder.mkdir(parents=True)
    for name, rows in tables.items():
        (folder / f"{name}.json").write_text(json.dumps(rows))
    for below in ("prediction", "expansion"):
        (root / "maps" / below).mkdir(parents=True)
    (root / "maps/none.png").write_bytes(b"")
    (root / "maps/prediction/prediction_scenes.json").write_text(json.dumps(listed))
    (root / f"maps/expansion/{NUSCENES_LOCATION}.json").write_text(json.dumps(nuscenes_map()))


def _write_scene(tables: dict[str, list[Any]], scene: str, seed: int, keyframes: int) -> list[str]:
    """Adds a scene's rows; returns the challenge's agents: vehicles with enough time before and after them."""
    random = np.random.default_rng(seed)
    times = np.cumsum(0.5 + random.uniform(-0.02, 0.02, size=keyframes))
    samples = [f"{scene}-sample{number}" for number in range(keyframes)]
    tables["scene"].append({"token": scene, "log_token": "log", "nbr_samples": keyframes, "name": scene,
        "first_sample_token": samples[0], "last_sample_token": samples[-1], "description": ""})  # fmt: skip
    for number, token in enumerate(samples):
        tables["sample"].append({"token": token, "timestamp": int(1.5e15 + 1e6 * (1000 * seed + times[number])),
            "prev": samples[number - 1] if number else "", "scene_token": scene,
            "next": samples[number + 1] if number + 1 < keyframes else ""})  # fmt: skip
    agents = []
    for agent, category in enumerate(_CATEGORIES):
        instance = f"{scene}i{agent}".replace("-", "")
        seen = range(6, 12) if agent == 3 else range(keyframes)
        xy, heading, _ = drive(seed + agent, times, (100.0 + 6 * agent, 100.0 + 5 * agent))
        tokens = {number: f"{instance}-{number}" for number in seen}
        tables["instance"].append({"token": instance, "category_token": f"c{_CATEGORIES.index(category)}",
            "nbr_annotations": len(seen), "first_annotation_token": tokens[seen[0]],
            "last_annotation_token": tokens[seen[-1]]})  # fmt: skip
        for number in seen:
            half = heading[number] / 2
            tables["sample_annotation"].append({"token": tokens[number], "sample_token": samples[number],
                "instance_token": instance, "visibility_token": "4", "attribute_tokens": [],
                "translation": [*xy[number].tolist(), 1.0], "size": [1.9, 4.5, 1.6],
                "rotation": [float(np.cos(half)), 0.0, 0.0, float(np.sin(half))],
                "prev": tokens.get(number - 1, ""), "next": tokens.get(number + 1, ""),
                "num_lidar_pts": 5, "num_radar_pts": 1})  # fmt: skip
        if category.startswith("vehicle"):
            agents += [f"{instance}_{samples[number]}" for number in seen if number in (0, 1, 4, 7, 8)]
    return agents


def nuscenes_map() -> dict[str, Any]:
    """Returns a map expansion with two drivable areas (one with a hole), a crossing, a walkway and a curved lane."""
    nodes: list[dict[str, Any]] = []
    polygons: list[dict[str, Any]] = []

    def ring(*points: tuple[float, float]) -> list[str]:
        first = len(nodes)
        nodes.extend({"token": f"n{first + n}", "x": x, "y": y} for n, (x, y) in enumerate(points))
        return [f"n{number}" for number in range(first, len(nodes))]

    def polygon(points: list[tuple[float, float]], hole: list[tuple[float, float]] | None = None) -> str:
        holes = [{"node_tokens": ring(*hole)}] if hole else []
        polygons.append({"token": f"p{len(polygons)}", "exterior_node_tokens": ring(*points), "holes": holes})
        return str(polygons[-1]["token"])

    def box(x0: float, y0: float, x1: float, y1: float) -> list[tuple[float, float]]:
        return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]

    areas = [polygon(box(50, 60, 150.37, 140.21), box(80, 80, 90, 90.5)), polygon(box(130, 100, 220, 120))]
    crossing, walkway = polygon(box(95, 95, 105, 98)), polygon(box(45, 60, 49, 140))
    arcs = [{"start_pose": [100.0, 100.0, 0.5], "end_pose": [0.0, 0.0, 0.0], "shape": "LSR", "radius": 20.0,
             "segment_length": [10.0, 12.5, 7.0]}]  # fmt: skip
    arcs[0]["end_pose"] = [118.720379, 122.379622, 0.65]
    empty = ("line", "road_segment", "road_block", "lane", "stop_line", "carpark_area", "road_divider", "lane_divider",
             "traffic_light", "lane_connector")  # fmt: skip
    return {
        "version": "1.3", "canvas_edge": [1585.6, 2025.0], "node": nodes, "polygon": polygons,
        **{name: [] for name in empty},
        "drivable_area": [{"token": "d0", "polygon_tokens": areas}],
        "ped_crossing": [{"token": "c0", "polygon_token": crossing}],
        "walkway": [{"token": "w0", "polygon_token": walkway}],
        "arcline_path_3": {"lane0": arcs}, "connectivity": {},
    }  # fmt: skip
