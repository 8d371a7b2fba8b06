"""A sweep of a raw tree as a SensorBundle: pictures straightened, points in the vehicle's frame, labels on the grid."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg

from lead_trainer.data.picture_bytes import decoded, why_refused
from lead_trainer.errors import BadData
from lead_trainer.recipes.nuplan.data_keys import CLASSES, LAYERS, TASKS
from lead_trainer.recipes.nuplan.geometry import Doubles, inverse, relative, transform, turned
from lead_trainer.recipes.nuplan.ingest.boxes import read_boxes
from lead_trainer.recipes.nuplan.ingest.log_tables import Lens, Log, Pose
from lead_trainer.recipes.nuplan.ingest.nuplan_tree import NuplanTree
from lead_trainer.recipes.nuplan.ingest.point_cloud import read_point_cloud
from lead_trainer.recipes.nuplan.lenses import Picture, resized_intrinsic, straightened
from lead_trainer.recipes.nuplan.prepare_keys import NuplanKeys
from lead_trainer.recipes.nuplan.sensor_bundle import Array, SensorBundle
from lead_trainer.recipes.nuplan.targets.boxes import Agents, agents_of, ego_way
from lead_trainer.recipes.nuplan.targets.clouds import points_of
from lead_trainer.recipes.nuplan.targets.grids import map_layer, middles, occupied, seen_by_lidar

JPEG_QUALITY = 95
_FRACTIONS = 4096  # of a pixel, that principal points are rounded to: mirroring them twice is then exact


@dataclass(frozen=True)
class Shot:
    """One picture of a sweep, of the raw tree."""

    channel: str
    path: str
    pose: int  # row of the log's poses


def bundle_of_sweep(tree: NuplanTree, log: Log, sweep: int, keys: NuplanKeys) -> SensorBundle:
    """Returns the bundle; raises BadData naming the file that is missing or odd."""
    pose = log.sweep_pose(sweep)
    shots = shots_of(tree, log, sweep, keys)
    if isinstance(shots, str):
        raise BadData(f"{log.path}: sweep {log.tokens[sweep]}: {shots}; restore the file")
    path = tree.blob(log.clouds[sweep])
    if path is None:
        raise BadData(f"{log.path}: sweep {log.tokens[sweep]}: file {log.clouds[sweep]} is missing; restore it")
    points = points_of(read_point_cloud(tree.read(path), path), log.lidar, keys.range_m, keys.lidar_rings)
    ego = np.array([pose.place[0], pose.place[1], pose.heading])
    agents = agents_of(log, sweep, keys.future_steps, keys.future_step_s)
    cells = middles(keys.range_m, keys.cell_m)
    city = tree.city_map(log.city)
    layers = [
        np.zeros(cells.shape[:2], np.bool_) if city is None else map_layer(city, layer, ego, cells) for layer in LAYERS
    ]
    taken = occupied(agents.poses, agents.sizes, cells)
    known = seen_by_lidar(points.astype(np.float64), taken, cells, keys.range_m, keys.cell_m)
    drops = [name for name, lacks in (("segmentation", city is None), ("points", not len(points))) if lacks]
    return SensorBundle(
        timestamp=int(log.timestamps[sweep]),
        log=log.name,
        token=log.tokens[sweep],
        city=log.city,
        drop_flags=tuple(drops),
        channels=keys.cameras,
        images=tuple(_picture(tree, log.lenses[shot.channel], shot.path, keys.image_size) for shot in shots),
        image_size=keys.image_size,
        **rig_of(log, keys),
        picture_to_sweep=np.stack([_between(log.pose(shot.pose), pose) for shot in shots]).astype(np.float32),
        points=points,
        ego_pose=np.concatenate([pose.place, pose.rotation]),
        ego_state=np.concatenate([pose.velocity, pose.acceleration]).astype(np.float32),
        **_ego_future(log, sweep, ego, keys),
        **_agents(agents, ego, keys),
        layers=np.stack(layers).astype(np.uint8),
        occupied=taken.astype(np.uint8),
        known=known.astype(np.uint8),
        labelled=np.array([task != "segmentation" or city is not None for task in TASKS]),
    )


def shots_of(tree: NuplanTree, log: Log, sweep: int, keys: NuplanKeys) -> list[Shot] | str:
    """Returns the pictures of the rig that are nearest to a sweep in time, or why one is not there."""
    shots = []
    for channel in keys.cameras:
        if channel not in log.lenses:
            return f"the log has no camera {channel}"
        near = log.nearest_picture(channel, int(log.timestamps[sweep]), 1e3 * keys.max_camera_gap_ms)
        if near is None:
            return f"{channel} has no picture within {keys.max_camera_gap_ms:g} ms"
        pictures = log.pictures[channel]
        path = tree.blob(pictures.files[near])
        if path is None:
            return f"file {pictures.files[near]} is missing"
        shots.append(Shot(channel, path, int(pictures.poses[near])))
    return shots


def rig_of(log: Log, keys: NuplanKeys) -> dict[str, Array]:
    """Returns lenses and mounts of a log's rig, for pictures of `image_size`: the same for all sweeps of a log."""
    lenses = [log.lenses[channel] for channel in keys.cameras]
    intrinsics = np.stack(
        [resized_intrinsic(lens.intrinsic, (lens.height, lens.width), keys.image_size) for lens in lenses]
    )
    intrinsics[:, :2, 2] = np.round(intrinsics[:, :2, 2] * _FRACTIONS) / _FRACTIONS
    mounts = np.stack([transform(lens.mount.translation, lens.mount.rotation) for lens in lenses])
    return {
        "intrinsics": intrinsics.astype(np.float32),
        "distortion": np.zeros((len(lenses), 5), np.float32),
        "camera_to_vehicle": mounts.astype(np.float32),
        "lidar_to_vehicle": transform(log.lidar.translation, log.lidar.rotation).astype(np.float32),
    }


def read_picture(data: bytes, path: str, lens: Lens) -> Picture:
    """Returns a raw picture (H, W, 3) RGB; raises BadData naming the file where it is not whole, or of another size."""
    fault = why_refused(data)
    picture: npt.NDArray[Any] | None = None
    if not fault:
        picture = decoded(data, cv2.IMREAD_COLOR_RGB)
        fault = "it cannot be decoded" if picture is None or data[-2:] != b"\xff\xd9" else ""
    if picture is None or fault:
        raise BadData(f"file {path} is no whole picture: {fault}; restore it")
    if picture.shape[:2] != (lens.height, lens.width):
        height, width = picture.shape[:2]
        raise BadData(
            f"file {path}: found {width} x {height} pixels, expected {lens.width} x {lens.height}; restore it"
        )
    return np.asarray(picture, np.uint8)


def _picture(tree: NuplanTree, lens: Lens, path: str, size: tuple[int, int]) -> bytes:
    straight = straightened(read_picture(tree.read(path), path, lens), lens.intrinsic, lens.distortion, size)
    whole = np.ascontiguousarray(straight)
    return bytes(simplejpeg.encode_jpeg(whole, JPEG_QUALITY, "RGB", colorsubsampling="444", fastdct=False))


def _between(picture: Pose, sweep: Pose) -> Doubles:
    """Returns the transform from the vehicle's frame at a picture to that at the sweep."""
    return inverse(transform(sweep.place, sweep.rotation)) @ transform(picture.place, picture.rotation)


def _ego_future(log: Log, sweep: int, ego: Doubles, keys: NuplanKeys) -> dict[str, Array]:
    way, _ = ego_way(log, sweep, keys.future_steps, keys.future_step_s)
    values = np.zeros((keys.future_steps, 4), np.float32)
    values[: len(way), :3] = relative(way[:, :3], *ego.tolist())
    values[: len(way), 3] = way[:, 3]
    return {"ego_future": values, "ego_future_valid": np.arange(keys.future_steps) < len(way)}


def agent_counts(log: Log, sweeps: Sequence[int], keys: NuplanKeys) -> list[int]:
    """Returns how many boxes the sample of each sweep has."""
    boxes = read_boxes(log, sweeps)
    kinds = _kinds([log.tracks[track].category for track in boxes.tracks])
    counts = []
    for sweep in sweeps:
        pose, rows = log.sweep_pose(sweep), boxes.of_sweep(sweep)
        places = turned(np.stack([boxes.x[rows], boxes.y[rows]], axis=1) - pose.place[:2], -pose.heading)
        inside = (kinds[rows] >= 0) & (np.abs(places).max(axis=1, initial=0.0) < keys.range_m)
        counts.append(min(int(inside.sum()), keys.max_agents))
    return counts


def _kinds(categories: Sequence[str]) -> npt.NDArray[np.int64]:
    return np.array([CLASSES.index(name) if name in CLASSES else -1 for name in categories], np.int64)


def _agents(agents: Agents, ego: Doubles, keys: NuplanKeys) -> dict[str, Array]:
    """Returns the boxes of road users inside of the grid, the nearest first, and their ways."""
    kinds = _kinds(agents.categories)
    inside = np.abs(agents.poses[:, :2]).max(axis=1, initial=0.0) < keys.range_m
    rows = np.flatnonzero((kinds >= 0) & inside)
    distance = np.hypot(agents.poses[rows, 0], agents.poses[rows, 1])
    rows = rows[np.argsort(distance, kind="stable")][: keys.max_agents]
    ways = agents.ways_utm[rows, 1:]
    valid = ~np.isnan(ways[..., 0])
    futures = np.concatenate([relative(ways[..., :3], *ego.tolist()), ways[..., 3:]], axis=-1)
    futures[~valid] = 0.0
    poses, sizes = agents.poses[rows], agents.sizes[rows]
    boxes = np.concatenate([poses[:, :2], sizes[:, :2], poses[:, 2:], agents.velocities[rows]], axis=1)
    return {
        "boxes": boxes.astype(np.float32),
        "box_class": kinds[rows],
        "futures": futures.astype(np.float32),
        "future_valid": valid,
    }
