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
