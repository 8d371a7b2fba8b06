"""Writes a made-up tree in nuScenes' format: tables, pictures of CAM_FRONT, and messages of the CAN bus."""

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lead_trainer.example_worlds.world.drawing import Plain
from lead_trainer.example_worlds.world.drives import Drive, twin, wandering
from lead_trainer.recipes.nuscenes_splits import FULL_VERSION, VAL
from lead_trainer.recipes.world.ingest.can_bus import DRIVE, FULL_BRAKE, FULL_THROTTLE
from lead_trainer.recipes.world.ingest.pictures import encoded

CAMERA = "CAM_FRONT"
FIRST_US, BETWEEN_US = 1_532_000_000_000_000, 100_000_000
KEYFRAME_US, SWEEPS = 500_000, 5  # between two keyframes: 12 Hz
CAN_US = 500_000
TABLES = (
    "attribute", "calibrated_sensor", "category", "ego_pose", "instance", "log", "map", "sample", "sample_annotation",
    "sample_data", "scene", "sensor", "visibility",
)  # fmt: skip


@dataclass(frozen=True)
class ExampleTree:
    """What is written; the same values give the same bytes."""

    train: int = 4  # scenes
    val: int = 2
    keyframes: int = 12  # of a scene
    size: tuple[int, int] = (90, 160)  # height, width
    seed: int = 0
    sweeps: bool = False  # also the pictures between keyframes
    twins: bool = False  # scenes come in pairs that are alike for a second, then turn left and right
    without_can: int = 0  # of the scenes, the last ones


def write_example_tree(root: Path, tree: ExampleTree) -> list[str]:
    """Writes the tree below `root`; returns the names of its scenes, training first."""
    outside = [number for number in range(1, 850) if number not in VAL]
    numbers = [*outside[: tree.train], *sorted(VAL)[: tree.val]]
    names = [f"scene-{number:04d}" for number in numbers]
    writer = _Writer(root, tree)
    seconds = (tree.keyframes - 1) * 1e-6 * KEYFRAME_US
    for place, name in enumerate(names):
        seed = 1000 * tree.seed + (place // 2 if tree.twins else place)
        drive = twin(seed, seconds, 1 - 2 * (place % 2)) if tree.twins else wandering(seed, seconds)
        writer.scene(name, FIRST_US + place * BETWEEN_US, drive, Plain(seed))
        if place < len(names) - tree.without_can:
            messages = _messages(drive, FIRST_US + place * BETWEEN_US, seconds)
            _write(root / f"can_bus/{name}_vehicle_monitor.json", messages)
    for table, rows in writer.tables.items():
        _write(root / FULL_VERSION / f"{table}.json", rows)
    return names


class _Writer:
    """Writes pictures, and collects the rows of the tables."""

    def __init__(self, root: Path, tree: ExampleTree) -> None:
        self._root, self._tree = root, tree
        self._every = SWEEPS + 1 if tree.sweeps else 1  # pictures a keyframe
        self.tables: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        self._add("sensor", CAMERA, channel=CAMERA, modality="camera")

    def scene(self, name: str, start_us: int, drive: Drive, plain: Plain) -> None:
        """Writes one scene."""
        tree, count = self._tree, (self._tree.keyframes - 1) * self._every + 1
        mount = {"translation": [1.7, 0.0, 1.5], "rotation": [0.5, -0.5, 0.5, -0.5], "camera_intrinsic": []}
        self._add("log", name, logfile=name, vehicle="n000", date_captured="2018-07-18", location="plain")
        self._add("calibrated_sensor", name, sensor_token=_token("sensor", CAMERA), **mount)
        samples = [_token("sample", f"{name}/{number}") for number in range(tree.keyframes)]
        ends = {"first_sample_token": samples[0], "last_sample_token": samples[-1], "nbr_samples": len(samples)}
        self._add("scene", name, name=name, log_token=_token("log", name), description="made up", **ends)
        for number in range(tree.keyframes):
            links = _links("sample", name, number, tree.keyframes)
            stamp = start_us + number * KEYFRAME_US
            self._add("sample", f"{name}/{number}", timestamp=stamp, scene_token=_token("scene", name), **links)
        for number in range(count):
            self._shot(name, number, count, start_us, drive, plain)

    def _shot(self, name: str, number: int, count: int, start_us: int, drive: Drive, plain: Plain) -> None:
        elapsed = number * KEYFRAME_US // self._every
        row, stamp = drive.at(1e-6 * elapsed), start_us + elapsed
        x, y, yaw = float(drive.x[row]), float(drive.y[row]), float(drive.yaw[row])
        keyframe, key = number % self._every == 0, f"{name}/{number}"
        file = f"{'samples' if keyframe else 'sweeps'}/{CAMERA}/{name}__{CAMERA}__{stamp}.jpg"
        (self._root / file).parent.mkdir(parents=True, exist_ok=True)
        (self._root / file).write_bytes(encoded(plain.picture(x, y, yaw, self._tree.size)))
        rotation = [math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)]
        self._add("ego_pose", key, timestamp=stamp, rotation=rotation, translation=[x, y, 0.0])
        tokens = {
            "sample_token": _token("sample", f"{name}/{number // self._every}"),
            "ego_pose_token": _token("ego_pose", key),
            "calibrated_sensor_token": _token("calibrated_sensor", name),
        }
        height, width = self._tree.size
        facts = {"fileformat": "jpg", "height": height, "width": width, "filename": file, "is_key_frame": keyframe}
        self._add("sample_data", key, timestamp=stamp, **tokens, **facts, **_links("sample_data", name, number, count))

    def _add(self, table: str, key: str, **values: Any) -> None:
        self.tables[table].append({"token": _token(table, key), **values})


def _messages(drive: Drive, start_us: int, seconds: float) -> list[dict[str, Any]]:
    """Returns what the car's bus sent, from a little before the first picture to a little after the last."""
    messages = []
    for elapsed in range(-CAN_US // 5, int(1e6 * seconds) + CAN_US, CAN_US):
        row = drive.at(max(1e-6 * elapsed, 0.0))
        message = {
            "utime": start_us + elapsed,
            "steering": float(drive.wheel[row]),
            "throttle": round(FULL_THROTTLE * drive.throttle[row]),
            "brake": round(FULL_BRAKE * drive.brake[row]),
            "gear_position": DRIVE,
            "vehicle_speed": 3.6 * float(drive.speed[row]),  # km/h
        }
        messages.append(message)
    return messages


def _links(table: str, name: str, number: int, count: int) -> dict[str, str]:
    def token(other: int) -> str:
        return _token(table, f"{name}/{other}") if 0 <= other < count else ""

    return {"prev": token(number - 1), "next": token(number + 1)}


def _token(table: str, key: str) -> str:
    return hashlib.sha256(f"{table}/{key}".encode()).hexdigest()[:32]


def _write(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=0), encoding="utf-8")
