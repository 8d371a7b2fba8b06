"""Writes a made-up tree in nuPlan's format: logs as databases, pictures, point clouds, and maps of two towns."""

import hashlib
import pickle
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lead_trainer.example_worlds.nuplan.maps import write_maps
from lead_trainer.example_worlds.nuplan.schema import SCHEMA
from lead_trainer.example_worlds.nuplan.sensors import LIDAR, Camera, cloud, lenses_of
from lead_trainer.example_worlds.nuplan.town import Town, town_of
from lead_trainer.example_worlds.nuplan.traffic import COLOURS, Traffic, traffic_in
from lead_trainer.recipes.nuplan.geometry import Doubles, transform
from lead_trainer.recipes.nuplan.ingest.log_tables import CATEGORIES, Mount

SWEEP_US, PICTURE_US, POSE_US = 50_000, 100_000, 10_000
SHORT_S, SHORT_SCENES = 1, 2  # scenes before and after the long one, of which no sample is made
SEEN_M = 60.0  # actors are labelled within
FIRST_US = 1_620_000_000_000_000
PITCH, ROLL = 0.004, 0.003  # radians, of the swinging car


@dataclass(frozen=True)
class ExampleTree:
    """What is written; the same values give the same files."""

    logs: int = 10  # alternately of two cities
    seconds: int = 20  # of the long scene of a log
    blobs_every: int = 10  # of this number of sweeps one has pictures and a cloud: 20 sweeps are a second
    size: tuple[int, int] = (108, 192)  # height, width of pictures
    cars: int = 5  # on each lane; and as many parked, and as many people
    seed: int = 0

    @property
    def whole_s(self) -> int:
        """Seconds of a log, with the short scenes around the long one."""
        return self.seconds + 2 * SHORT_SCENES * SHORT_S


def write_example_tree(
    root: Path, tree: ExampleTree, progress: Callable[[int, int], None] = lambda n, of: None
) -> None:
    """Writes the tree below `root`."""
    towns = [town_of(number) for number in range(2)]
    write_maps(root / "maps", towns)
    cameras = {channel: Camera(lens) for channel, lens in lenses_of(tree.size).items()}
    for number in range(tree.logs):
        seed = 1000 * tree.seed + number
        _Writer(
            root, tree, number, towns[number % 2], traffic_in(towns[number % 2], seed, tree.whole_s + 1, tree.cars)
        ).write(cameras)
        progress(number + 1, tree.logs)


class _Writer:
    """Writes one log."""

    def __init__(self, root: Path, tree: ExampleTree, number: int, town: Town, traffic: Traffic) -> None:
        self._tree, self._number, self._town, self._traffic = tree, number, town, traffic
        self.name = f"2021.05.{number % 28 + 1:02d}.08.00.00_veh-{number:02d}_00000_{tree.whole_s:05d}"
        self._path = root / f"nuplan-v1.1/splits/mini/{self.name}.db"
        self._blobs = root / "nuplan-v1.1/sensor_blobs"
        self._start = FIRST_US + number * 3_600_000_000
        self._random = np.random.default_rng([tree.seed, number, 9])

    def write(self, cameras: Mapping[str, Camera]) -> None:
        """Writes database and blobs."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        with closing(sqlite3.connect(self._path)) as database, database:
            database.executescript(SCHEMA)
            self._fixed(database)
            self._poses(database)
            tracks = self._tracks(database)
            self._sweeps(database, cameras, tracks)
            self._pictures(database, cameras)

    def _insert(self, database: sqlite3.Connection, table: str, key: str, **values: Any) -> bytes:
        token = self._token(table, key)
        columns, marks = ", ".join(["token", *values]), ", ".join("?" * (1 + len(values)))
        database.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", (token, *values.values()))
        return token

    def _token(self, table: str, key: str) -> bytes:
        return hashlib.sha256(f"{self._tree.seed}/{self._number}/{table}/{key}".encode()).digest()[:8]

    def _fixed(self, database: sqlite3.Connection) -> None:
        """Writes log, rig, categories and scenes."""
        town = self._town
        facts = {"vehicle_name": f"veh-{self._number:02d}", "date": "2021-05-01", "timestamp": self._start}
        place = {"logfile": self.name, "location": town.city, "map_version": town.city}
        log = self._insert(database, "log", "", **facts, **place)
        self._insert(database, "lidar", "", log_token=log, channel="MergedPointCloud", model="made up", **_mount(LIDAR))
        for channel, lens in lenses_of(self._tree.size).items():
            facts = {"channel": channel, "model": "made up", **_mount(lens.mount)}
            facts |= {"intrinsic": _list(lens.intrinsic), "distortion": _list(lens.distortion)}
            self._insert(database, "camera", channel, log_token=log, width=lens.width, height=lens.height, **facts)
        for category in CATEGORIES:
            self._insert(database, "category", category, name=category, description="made up")
        for number in range(2 * SHORT_SCENES + 1):
            goal = self._token("ego_pose", str(100 * self._tree.whole_s)) if number < SHORT_SCENES + 1 else None
            self._insert(
                database, "scene", str(number), log_token=log, name=f"{number:04d}", goal_ego_pose_token=goal,
                roadblock_ids="",
            )  # fmt: skip

    def _poses(self, database: sqlite3.Connection) -> None:
        log = self._token("log", "")
        for number in range(100 * self._tree.whole_s + 1):
            time = number / 100
            x, y, yaw, speed = self._traffic.ego(time)
            quaternion = _rotation(yaw, time)
            turn = float(speed) / self._town.radius
            self._insert(
                database, "ego_pose", str(number), timestamp=self._start + number * POSE_US, x=float(x), y=float(y),
                z=self._town.height, qw=quaternion[0], qx=quaternion[1], qy=quaternion[2], qz=quaternion[3],
                vx=float(speed), vy=0.0, vz=0.0, acceleration_x=self._traffic.acceleration(time),
                acceleration_y=float(speed) * turn, acceleration_z=0.0, angular_rate_x=0.0, angular_rate_y=0.0,
                angular_rate_z=turn, epsg=self._town.epsg, log_token=log,
            )  # fmt: skip

    def _tracks(self, database: sqlite3.Connection) -> list[bytes]:
        tracks = []
        for number, actor in enumerate(self._traffic.actors):
            length, width, height = actor.size
            category = self._token("category", actor.category)
            size = {"width": width, "length": length, "height": height}
            tracks.append(self._insert(database, "track", str(number), category_token=category, **size))
        return tracks

    def _sweeps(self, database: sqlite3.Connection, cameras: Mapping[str, Camera], tracks: list[bytes]) -> None:
        lidar = self._token("lidar", "")
        for number in range(20 * self._tree.whole_s):
            name = self._token("lidar_pc", str(number)).hex()
            file = f"{self.name}/MergedPointCloud/{name}.pcd"
            token = self._insert(
                database, "lidar_pc", str(number), ego_pose_token=self._token("ego_pose", str(5 * number)),
                lidar_token=lidar, scene_token=self._token("scene", str(self._scene(number))), filename=file,
                timestamp=self._start + number * SWEEP_US,
            )  # fmt: skip
            boxes, _ = self._boxes(number / 20)
            for actor, box in enumerate(boxes):
                if np.hypot(*(box[:2] - self._traffic.ego(number / 20)[:2])) < SEEN_M:
                    self._box(database, number, actor, box, token, tracks[actor])
            if self._has_blobs(number):
                data = cloud(self._town, self._vehicle(number / 20), boxes, self._random)
                (self._blobs / file).parent.mkdir(parents=True, exist_ok=True)
                (self._blobs / file).write_bytes(data)
        first = self._token("lidar_pc", str(20 * SHORT_S * SHORT_SCENES))
        self._insert(database, "scenario_tag", "", lidar_pc_token=first, type="on_roundabout")

    def _box(
        self, database: sqlite3.Connection, number: int, actor: int, box: Doubles, sweep: bytes, track: bytes
    ) -> None:
        x, y, yaw, length, width, height, ground = (float(value) for value in box)
        speed = float(self._traffic.actors[actor].motion(number / 20)[3])
        self._insert(
            database, "lidar_box", f"{number}/{actor}", lidar_pc_token=sweep, track_token=track, x=x, y=y,
            z=ground + height / 2, width=width, length=length, height=height, vx=speed * float(np.cos(yaw)),
            vy=speed * float(np.sin(yaw)), vz=0.0, yaw=yaw, confidence=1.0,
        )  # fmt: skip

    def _pictures(self, database: sqlite3.Connection, cameras: Mapping[str, Camera]) -> None:
        for number in range(10 * self._tree.whole_s):
            time = number / 10
            for channel, camera in cameras.items():
                name = self._token("image", f"{channel}/{number}").hex()
                file = f"{self.name}/{channel}/{name}.jpg"
                self._insert(
                    database, "image", f"{channel}/{number}", camera_token=self._token("camera", channel),
                    ego_pose_token=self._token("ego_pose", str(10 * number)), filename_jpg=file,
                    timestamp=self._start + number * PICTURE_US,
                )  # fmt: skip
                if self._has_blobs(2 * number):
                    boxes, colours = self._boxes(time)
                    (self._blobs / file).parent.mkdir(parents=True, exist_ok=True)
                    shown = camera.picture(self._town, self._vehicle(time), boxes, colours)
                    (self._blobs / file).write_bytes(shown)

    def _has_blobs(self, sweep: int) -> bool:
        return self._scene(sweep) == SHORT_SCENES and sweep % self._tree.blobs_every == 0

    def _scene(self, sweep: int) -> int:
        """Returns the number of the scene that a sweep is of."""
        second, before = sweep // 20, SHORT_S * SHORT_SCENES
        if second < before:
            return second // SHORT_S
        return SHORT_SCENES + max(0, (second - before - self._tree.seconds) // SHORT_S + 1)

    def _boxes(self, time: float) -> tuple[Doubles, Any]:
        """Returns all boxes (n, 7) at a moment, x, y, yaw, length, width, height, ground; and their colours (n, 3)."""
        rows = [[*actor.motion(time)[:3], *actor.size, self._town.height] for actor in self._traffic.actors]
        colours = np.array([COLOURS[actor.category] for actor in self._traffic.actors], np.uint8)
        boxes = np.array(rows)
        boxes[:, 2] = (boxes[:, 2] + np.pi) % (2 * np.pi) - np.pi
        return boxes, colours

    def _vehicle(self, time: float) -> Doubles:
        x, y, yaw, _ = self._traffic.ego(time)
        return transform(np.array([x, y, self._town.height]), np.array(_rotation(float(yaw), time)))


def _rotation(yaw: float, time: float) -> list[float]:
    """Returns the quaternion of a car that swings a little."""
    pitch, roll = PITCH * np.sin(1.3 * time), ROLL * np.sin(0.9 * time + 1)
    cy, sy, cp, sp = np.cos(yaw / 2), np.sin(yaw / 2), np.cos(pitch / 2), np.sin(pitch / 2)
    cr, sr = np.cos(roll / 2), np.sin(roll / 2)
    found = (
        cr * cp * cy + sr * sp * sy,
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
    )
    return [float(value) for value in found]


def _mount(mount: Mount) -> dict[str, bytes]:
    return {"translation": _list(mount.translation), "rotation": _list(mount.rotation)}


def _list(values: Doubles) -> bytes:
    return pickle.dumps(values.tolist(), protocol=4)
