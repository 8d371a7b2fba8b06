"""What the recipe `nuplan` reads of a tree: logs, frames, boxes, ways, clouds, pictures, lanes, and grids.

The layout and the formulas are `shared/golden/nuplan/README.md`'s.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.data.picture_bytes import decoded
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.recipes.nuplan.comfort import smoothed_comfort
from lead_trainer.recipes.nuplan.data_keys import LAYERS
from lead_trainer.recipes.nuplan.geometry import Doubles, inverse, moved, rotation_matrix, transform
from lead_trainer.recipes.nuplan.ingest.boxes import read_lights, read_tags
from lead_trainer.recipes.nuplan.ingest.city_map import Connector, Lane, read_lanes
from lead_trainer.recipes.nuplan.ingest.log_tables import CATEGORIES, Log, Pose
from lead_trainer.recipes.nuplan.ingest.nuplan_tree import NuplanTree
from lead_trainer.recipes.nuplan.ingest.point_cloud import read_point_cloud
from lead_trainer.recipes.nuplan.lenses import projected
from lead_trainer.recipes.nuplan.targets.boxes import MOVING, SWEEPS_PER_S, Agents, agents_of, ego_way
from lead_trainer.recipes.nuplan.targets.clouds import in_vehicle, pillars_of
from lead_trainer.recipes.nuplan.targets.grids import map_layer, middles, occupied

RANGE_M, CELL_M, PILLAR_M = 50.0, 0.5, 0.2
STEPS, STEP_S = 8, 0.5
GAP_US = 50_000.0
CENTRE_M = 1.461  # from the rear axle to the middle of nuPlan's car
NEAREST_M = 1.0  # of a box that is projected
SCENE = 2  # the long one


def numbers(source: str) -> dict[str, Any]:
    """Returns what the expected file of a tree holds."""
    tree = NuplanTree(FolderTree(Path(source)))
    logs = {log.name: _of_log(tree, log) for log in _logs(tree)}
    maps = {}
    for city in tree.cities():
        path = tree.map_path(city)
        maps[city] = _of_map(*read_lanes(Path(source) / path, path))
    return {"logs": logs, "maps": maps}


def grids(source: str) -> dict[str, npt.NDArray[np.uint8]]:
    """Returns the packed bits of each layer around each sweep with blobs."""
    tree, cells = NuplanTree(FolderTree(Path(source))), middles(RANGE_M, CELL_M)
    found: dict[str, npt.NDArray[np.uint8]] = {}
    for log in _logs(tree):
        city = tree.city_map(log.city)
        assert city is not None
        for sweep in _with_blobs(tree, log):
            pose, token = log.sweep_pose(sweep), log.tokens[sweep]
            ego = np.array([pose.place[0], pose.place[1], pose.heading])
            agents = agents_of(log, sweep, STEPS, STEP_S)
            layers = {layer: map_layer(city, layer, ego, cells) for layer in LAYERS}
            layers["occupied"] = occupied(agents.poses, agents.sizes, cells)
            found |= {f"{token}|{layer}": np.packbits(bits.ravel()) for layer, bits in layers.items()}
    return found


def _logs(tree: NuplanTree) -> list[Log]:
    return [tree.log(split, name) for split in tree.splits() for name in tree.logs_of(split)]


def _with_blobs(tree: NuplanTree, log: Log) -> list[int]:
    """Returns the sweeps whose cloud and nearest picture of every camera are there."""
    return [
        sweep
        for sweep, cloud in enumerate(log.clouds)
        if tree.blob(cloud) and all(_picture(tree, log, channel, sweep) for channel in log.lenses)
    ]


def _picture(tree: NuplanTree, log: Log, channel: str, sweep: int) -> str | None:
    found = log.nearest_picture(channel, int(log.timestamps[sweep]), GAP_US)
    return None if found is None else tree.blob(log.pictures[channel].files[found])


def _of_log(tree: NuplanTree, log: Log) -> dict[str, Any]:
    counts = [len(log.sweeps_of(scene)) for scene in range(len(log.scenes))]
    valid = [sweep for sweep, scene in enumerate(log.scene_of) if log.scenes[scene].valid]
    with_blobs = _with_blobs(tree, log)
    found: dict[str, Any] = {
        "city": log.city,
        "vehicle": log.vehicle,
        "date": log.date,
        "tables": dict(log.tables),
        "scenes": [
            {"name": scene.name, "sweeps": count, "has_goal": bool(scene.goal)}
            for scene, count in zip(log.scenes, counts, strict=True)
        ],
        "sweeps_in_valid_scenes": len(valid),
        "first_valid": log.tokens[valid[0]] if valid else None,
        "last_valid": log.tokens[valid[-1]] if valid else None,
        "tagged": read_tags(log),
        "cameras": {channel: _of_lens(log, channel) for channel in sorted(log.lenses)},
        "sweeps_with_blobs": [log.tokens[sweep] for sweep in with_blobs],
        "frames": [_of_frame(tree, log, sweep) for sweep in with_blobs],
    }
    if len(log.scenes) > SCENE:
        first = log.sweeps_of(SCENE)[0]
        until = log.timestamps[first] + 1_000_000 * round(counts[SCENE] / SWEEPS_PER_S)
        inside = np.flatnonzero((log.timestamps >= log.timestamps[first]) & (log.timestamps <= until))
        found["sweeps_at_10hz_of_scene_2"] = len(inside[::2])
        found["comfort_of_the_expert_at_10hz_of_scene_2"] = _comfort(log, np.arange(first, len(log.timestamps), 2)[1:])
    return found


def _comfort(log: Log, sweeps: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Returns the comfort of the drive after a scene's first sweep, to the end of the log."""
    poses = [log.sweep_pose(int(sweep)) for sweep in sweeps]
    seconds = 1e-6 * (log.timestamps[sweeps] - log.timestamps[sweeps[0]])
    rows = [[*pose.place[:2], pose.heading, *pose.velocity, *pose.acceleration] for pose in poses]
    drive = np.concatenate([seconds[:, None], np.array(rows)], axis=1)
    return {"states": len(sweeps), "seconds": float(seconds[-1]), **smoothed_comfort(drive)}


def _of_lens(log: Log, channel: str) -> dict[str, Any]:
    lens = log.lenses[channel]
    return {
        "translation": lens.mount.translation.tolist(),
        "rotation": lens.mount.rotation.tolist(),
        "intrinsic": lens.intrinsic.tolist(),
        "distortion": lens.distortion.tolist(),
        "width": lens.width,
        "height": lens.height,
    }


def _of_frame(tree: NuplanTree, log: Log, sweep: int) -> dict[str, Any]:
    pose, agents = log.sweep_pose(sweep), agents_of(log, sweep, STEPS, STEP_S)
    way, times = ego_way(log, sweep, STEPS, STEP_S)
    ahead = rotation_2d(pose.heading) @ np.array([CENTRE_M, 0.0])
    return {
        "token": log.tokens[sweep],
        "timestamp": int(log.timestamps[sweep]),
        "ego": {
            **dict(zip("xyz", pose.place.tolist(), strict=True)),
            "heading": pose.heading,
            "q": pose.rotation.tolist(),
            **dict(zip(("vx", "vy", "ax", "ay"), [*pose.velocity.tolist(), *pose.acceleration.tolist()], strict=True)),
            "centre": (pose.place[:2] + ahead).tolist(),
        },
        "boxes": [_of_box(agents, number) for number in _by_category(agents)],
        "ego_future": [[*place, int(time)] for place, time in zip(way[:, :3].tolist(), times, strict=True)],
        "lights": [list(light) for light in read_lights(log, sweep)],
        "cloud": _of_cloud(tree, log, sweep),
        "images": {channel: _of_picture(log, channel, sweep) for channel in sorted(log.lenses)},
        "projected": _projected(tree, log, sweep, agents),
    }


def _by_category(agents: Agents) -> list[int]:
    """Returns the boxes in the devkit's order: category by category, in each as in the table."""
    return sorted(range(len(agents.tracks)), key=lambda number: CATEGORIES.index(agents.categories[number]))


def rotation_2d(angle: float) -> Doubles:
    """Returns the matrix of a turn to the left."""
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def _of_box(agents: Agents, number: int) -> dict[str, Any]:
    x, y, yaw = agents.utm[number].tolist()
    length, width, height = agents.sizes[number].tolist()
    way = [None if np.isnan(place).any() else place.tolist() for place in agents.ways_utm[number, :, :3]]
    return {
        "track": agents.tracks[number],
        "category": agents.categories[number],
        "x": x,
        "y": y,
        "yaw": yaw,
        "width": width,
        "length": length,
        "height": height,
        **dict(zip(("ego_x", "ego_y", "ego_yaw"), agents.poses[number].tolist(), strict=True)),
        **dict(zip(("vx", "vy"), agents.velocities_utm[number].tolist(), strict=True)),
        "future": way if agents.categories[number] in MOVING else None,
    }


def _of_cloud(tree: NuplanTree, log: Log, sweep: int) -> dict[str, Any]:
    path = tree.blob(log.clouds[sweep])
    assert path is not None
    cloud = read_point_cloud(tree.read(path), path)
    points = in_vehicle(cloud, log.lidar)
    inside = points[np.abs(points[:, :2]).max(axis=1) < RANGE_M]
    counts = pillars_of(points, RANGE_M, PILLAR_M)
    off = np.abs((inside[:, :2] + RANGE_M) / PILLAR_M - np.round((inside[:, :2] + RANGE_M) / PILLAR_M)) * PILLAR_M
    return {
        "points": cloud.shape[1],
        "sha256_f32_6xN": hashlib.sha256(np.ascontiguousarray(cloud, "<f4").tobytes()).hexdigest(),
        "first_three_in_vehicle": points[:3].tolist(),
        "inside_100m": len(inside),
        "on_an_edge": int((off.min(axis=1) < 1e-5).sum()),
        "pillars": len(counts),
        "largest_pillar": int(counts.max()),
        "rings_below_32": int((cloud[4] < 32).sum()),
        "lidar_0": int((cloud[5] == 0).sum()),
    }


def _of_picture(log: Log, channel: str, sweep: int) -> dict[str, Any]:
    found = log.nearest_picture(channel, int(log.timestamps[sweep]), GAP_US)
    assert found is not None
    pictures = log.pictures[channel]
    pose = log.pose(int(pictures.poses[found]))
    return {
        "token": pictures.tokens[found],
        "timestamp": int(pictures.timestamps[found]),
        "file": pictures.files[found],
        "ego": {**dict(zip("xyz", pose.place.tolist(), strict=True)), "q": pose.rotation.tolist()},
    }


def _projected(tree: NuplanTree, log: Log, sweep: int, agents: Agents) -> list[dict[str, Any]]:
    found = []
    places = np.concatenate([agents.utm[:, :2], agents.z[:, None]], axis=1)
    for channel in sorted(log.lenses):
        lens, pictures = log.lenses[channel], log.pictures[channel]
        number = log.nearest_picture(channel, int(log.timestamps[sweep]), GAP_US)
        assert number is not None
        pose = log.pose(int(pictures.poses[number]))
        points = moved(
            moved(places, inverse(_to_city(pose))), inverse(transform(lens.mount.translation, lens.mount.rotation))
        )
        path = tree.blob(pictures.files[number])
        assert path is not None
        picture = decoded(tree.read(path), cv2.IMREAD_COLOR_RGB)
        assert picture is not None
        # The lens model is good to 45 degrees: what lies further out it folds back into the picture.
        ahead = np.flatnonzero((points[:, 2] > NEAREST_M) & (np.abs(points[:, :2]).max(axis=1) < points[:, 2]))
        if not len(ahead):
            continue
        pixels = projected(points[ahead], lens.intrinsic, lens.distortion)
        for row, (u, v) in zip(ahead, pixels.tolist(), strict=True):
            if 0 <= u < lens.width and 0 <= v < lens.height:
                found.append(
                    {
                        "channel": channel,
                        "track": agents.tracks[row],
                        "u": u,
                        "v": v,
                        "depth": float(points[row, 2]),
                        "rgb_there": picture[int(v), int(u)].tolist(),
                    }
                )
    return found


def _to_city(pose: Pose) -> Doubles:
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = rotation_matrix(pose.rotation), pose.place
    return matrix


def _of_map(lanes: Mapping[str, Lane], connectors: Mapping[str, Connector]) -> dict[str, Any]:
    return {
        "lanes": {
            name: {
                "length": _length(lane.line),
                "speed_limit": lane.speed_limit,
                "out": [other for other, connector in connectors.items() if connector.source == name],
                "in": [other for other, connector in connectors.items() if connector.target == name],
                "roadblock": lane.roadblock,
                "start": [*lane.line[0].tolist(), float(np.arctan2(*(lane.line[1] - lane.line[0])[::-1]))],
                "area": lane.area,
            }
            for name, lane in lanes.items()
        },
        "connectors": {
            name: {
                "length": _length(connector.line),
                "lights": bool(connector.stop_lines),
                "stop_lines": list(connector.stop_lines),
                "in": [connector.source],
                "out": [connector.target],
            }
            for name, connector in connectors.items()
        },
    }


def _length(line: Doubles) -> float:
    return float(np.hypot(*np.diff(line, axis=0).T).sum())
