"""One log as its database has it: rig, scenes, sweeps, pictures, poses and tracks; boxes are read sweep by sweep.

Schema: nuplan-devkit, `docs/nuplan_schema.md`. Rows that follow each other are found by their times: the chains of
`next_token` and `prev_token` are not read, so a chain that ends early or in a circle does no harm.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lead_trainer.errors import BadData
from lead_trainer.recipes.nuplan.geometry import Doubles, heading_of
from lead_trainer.recipes.nuplan.ingest.bounded_database import Database, Row, open_database
from lead_trainer.recipes.nuplan.ingest.cell_values import (
    integer_of,
    rotation_of,
    text_of,
    time_of,
    token_of,
    vector_of,
)
from lead_trainer.recipes.nuplan.ingest.physical_limits import measured

Int64 = npt.NDArray[np.int64]

_POSE = ("x", "y", "z", "qw", "qx", "qy", "qz", "vx", "vy", "vz", "acceleration_x", "acceleration_y")
_MOTION = ("angular_rate_z",)
_LEFT_OUT = 2  # scenes at each end of a log, of which the devkit makes no scenario


@dataclass(frozen=True)
class Mount:
    """Where a sensor is fixed to the vehicle."""

    translation: Doubles  # (3,) metres in the vehicle's frame
    rotation: Doubles  # (4,) w, x, y, z, from the sensor's frame to the vehicle's


@dataclass(frozen=True)
class Lens:
    """One camera: its mount and how it projects."""

    mount: Mount
    intrinsic: Doubles  # (3, 3) pixels
    distortion: Doubles  # (5,) k1, k2, p1, p2, k3
    width: int
    height: int


@dataclass(frozen=True)
class Pose:
    """The ego at a moment."""

    place: Doubles  # (3,) x, y, z of the rear axle, metres in the city's UTM zone
    rotation: Doubles  # (4,) w, x, y, z
    velocity: Doubles  # (2,) x, y in the vehicle's frame, m/s
    acceleration: Doubles  # (2,) m/s²

    @property
    def heading(self) -> float:
        """The heading in radians."""
        return heading_of(self.rotation)


@dataclass(frozen=True)
class Scene:
    """Some seconds of a log."""

    token: str
    name: str
    goal: str  # token of an ego pose, empty for none
    valid: bool  # by the devkit's rule


@dataclass(frozen=True)
class Pictures:
    """Pictures of a channel in the order of their times."""

    tokens: tuple[str, ...]
    files: tuple[str, ...]  # relative to the blobs' folder
    timestamps: Int64  # us
    poses: Int64  # (n,) rows of the log's poses


@dataclass(frozen=True)
class Track:
    """One road user."""

    category: str
    width: float
    length: float
    height: float


@dataclass(frozen=True)
class Log:
    """Everything of a log but its boxes; sweeps are in the order of their times."""

    name: str
    file: Path  # on this machine
    path: str  # in the tree, for messages
    city: str
    vehicle: str
    date: str
    lenses: Mapping[str, Lens]  # by channel
    lidar: Mount
    scenes: tuple[Scene, ...]  # by name
    tokens: tuple[str, ...]  # of sweeps
    timestamps: Int64  # (sweeps,) us
    clouds: tuple[str, ...]  # files
    scene_of: Int64  # (sweeps,) position in `scenes`
    sweep_poses: Int64  # (sweeps,) rows of `poses`
    pictures: Mapping[str, Pictures]  # by channel
    poses: Doubles  # (poses, 12) as _POSE
    tracks: Mapping[str, Track]  # by token
    tables: Mapping[str, int]  # rows

    def pose(self, row: int) -> Pose:
        """Returns a pose; raises BadData where its quaternion has no length."""
        values = self.poses[row]
        rotation = rotation_of(values[3:7].tolist(), f"{self.path}: table ego_pose, row {row + 1}, qw … qz")
        return Pose(values[:3], rotation, values[7:9], values[10:12])

    def sweep_pose(self, sweep: int) -> Pose:
        """Returns the pose of a sweep."""
        return self.pose(int(self.sweep_poses[sweep]))

    def sweeps_of(self, scene: int) -> Int64:
        """Returns the sweeps of a scene."""
        return np.flatnonzero(self.scene_of == scene)

    def nearest_picture(self, channel: str, timestamp: int, gap_us: float) -> int | None:
        """Returns the picture nearest in time, the earlier of two; None where none is within `gap_us`."""
        times = self.pictures[channel].timestamps
        if not len(times):
            return None
        found = int(np.argmin(np.abs(times - timestamp)))
        return found if abs(int(times[found]) - timestamp) <= gap_us else None


TABLES = (
    "ego_pose", "camera", "image", "lidar", "lidar_pc", "lidar_box", "track", "category", "scene", "scenario_tag",
    "traffic_light_status",
)  # fmt: skip


def read_log(file: Path, path: str) -> Log:
    """Returns the log of a database; raises BadData naming path, table and what is wrong with it."""
    with open_database(file, path) as database:
        return _Reader(database, file).log()


class _Reader:
    """Reads the tables in an order in which each knows the ones it refers to."""

    def __init__(self, database: Database, file: Path) -> None:
        self._database, self._file = database, file

    def log(self) -> Log:
        """Returns the log."""
        columns = ("token", "vehicle_name", "date", "logfile", "map_version")
        rows = self._database.rows("log", columns, "LIMIT 2")
        if len(rows) != 1:
            raise BadData(f"{self._database.name}: table log has {len(rows)} rows, expected one; fetch the file again")
        vehicle, date, name, city = (
            text_of(value, self._where("log", 0, column))
            for value, column in zip(rows[0][1:], columns[1:], strict=True)
        )
        poses, pose_rows = self._poses()
        scenes, scene_rows = self._scenes()
        lenses, channels = self._lenses()
        sweeps = self._sweeps(pose_rows, scene_rows)
        self._refuse_boxes_without_sweep()
        order = np.argsort(sweeps[2], kind="stable")
        return Log(
            name=name,
            file=self._file,
            path=self._database.name,
            city=city,
            vehicle=vehicle,
            date=date,
            lenses=lenses,
            lidar=self._lidar(),
            scenes=scenes,
            tokens=tuple(sweeps[0][at] for at in order),
            clouds=tuple(sweeps[1][at] for at in order),
            timestamps=sweeps[2][order],
            sweep_poses=sweeps[3][order],
            scene_of=sweeps[4][order],
            pictures=self._pictures(channels, pose_rows),
            poses=poses,
            tracks=self._tracks(),
            tables={table: self._database.count(table) for table in TABLES},
        )

    def _poses(self) -> tuple[Doubles, dict[str, int]]:
        rows = self._database.rows("ego_pose", ("token", *_POSE))
        values = measured(rows, 1, self._row_of("ego_pose"), _POSE)
        return values, self._by_token(rows, "ego_pose")

    def _scenes(self) -> tuple[tuple[Scene, ...], dict[str, int]]:
        rows = sorted(
            self._database.rows("scene", ("token", "name", "goal_ego_pose_token")), key=lambda row: str(row[1])
        )
        scenes = []
        for at, (token, name, goal) in enumerate(rows):
            where = self._where("scene", at, "name")
            valid = _LEFT_OUT <= at < len(rows) - _LEFT_OUT
            goal = "" if goal is None else token_of(goal, self._where("scene", at, "goal_ego_pose_token"))
            token = token_of(token, self._where("scene", at, "token"))
            scenes.append(Scene(token, text_of(name, where), goal, valid))
        return tuple(scenes), {scene.token: at for at, scene in enumerate(scenes)}

    def _lenses(self) -> tuple[dict[str, Lens], dict[str, str]]:
        columns = ("token", "channel", "translation", "rotation", "intrinsic", "distortion", "width", "height")
        lenses, channels = {}, {}
        for at, row in enumerate(self._database.rows("camera", columns)):
            where = {column: self._where("camera", at, column) for column in columns}
            channel = text_of(row[1], where["channel"])
            width, height = (integer_of(row[n], where[columns[n]]) for n in (6, 7))
            if not (0 < width <= 16384 and 0 < height <= 16384):
                raise BadData(f"{where['width']}: found {width} x {height} pixels; fetch the file again")
            if channel in lenses:
                raise BadData(f"{where['channel']}: {channel} is there twice; fetch the file again")
            lenses[channel] = Lens(
                self._mount(row[2], row[3], "camera", at),
                vector_of(row[4], (3, 3), where["intrinsic"]),
                vector_of(row[5], (5,), where["distortion"]),
                width,
                height,
            )
            if min(lenses[channel].intrinsic[0, 0], lenses[channel].intrinsic[1, 1]) <= 0:
                raise BadData(f"{where['intrinsic']}: found a focal length of 0 or less; fetch the file again")
            channels[token_of(row[0], where["token"])] = channel
        return lenses, channels

    def _lidar(self) -> Mount:
        rows = self._database.rows("lidar", ("translation", "rotation"), "LIMIT 2")
        if len(rows) != 1:
            raise BadData(f"{self._database.name}: table lidar has {len(rows)} rows, expected one; fetch it again")
        return self._mount(rows[0][0], rows[0][1], "lidar", 0)

    def _mount(self, translation: object, rotation: object, table: str, at: int) -> Mount:
        where = self._where(table, at, "rotation")
        turn = vector_of(rotation, (4,), where)
        return Mount(
            vector_of(translation, (3,), self._where(table, at, "translation")), rotation_of(turn.tolist(), where)
        )

    def _sweeps(
        self, poses: Mapping[str, int], scenes: Mapping[str, int]
    ) -> tuple[list[str], list[str], Int64, Int64, Int64]:
        columns = ("token", "filename", "timestamp", "ego_pose_token", "scene_token")
        rows = self._database.rows("lidar_pc", columns)
        if not rows:
            raise BadData(f"{self._database.name}: table lidar_pc is empty, expected sweeps; fetch the file again")
        where = f"{self._database.name}: table lidar_pc"
        tokens = list(self._by_token(rows, "lidar_pc"))
        return (
            tokens,
            [text_of(row[1], f"{where}, token {token}, filename") for row, token in zip(rows, tokens, strict=True)],
            np.array([time_of(row[2], f"{where}, timestamp") for row in rows], np.int64),
            self._links(rows, 3, poses, "lidar_pc", "ego_pose"),
            self._links(rows, 4, scenes, "lidar_pc", "scene"),
        )

    def _pictures(self, channels: Mapping[str, str], poses: Mapping[str, int]) -> dict[str, Pictures]:
        columns = ("token", "filename_jpg", "timestamp", "ego_pose_token", "camera_token")
        rows = self._database.rows("image", columns)
        where = f"{self._database.name}: table image"
        tokens = list(self._by_token(rows, "image"))
        names = {token: at for at, token in enumerate(channels)}
        cameras = self._links(rows, 4, names, "image", "camera")
        pose_rows = self._links(rows, 3, poses, "image", "ego_pose")
        times = np.array([time_of(row[2], f"{where}, timestamp") for row in rows], np.int64)
        found = {}
        for at, channel in enumerate(channels.values()):
            of_it = np.flatnonzero(cameras == at)
            of_it = of_it[np.argsort(times[of_it], kind="stable")]
            found[channel] = Pictures(
                tuple(tokens[row] for row in of_it),
                tuple(text_of(rows[row][1], f"{where}, token {tokens[row]}, filename_jpg") for row in of_it),
                times[of_it],
                pose_rows[of_it],
            )
        return found

    def _tracks(self) -> dict[str, Track]:
        categories = {}
        for at, (token, name) in enumerate(self._database.rows("category", ("token", "name"))):
            category = text_of(name, self._where("category", at, "name"))
            if category not in CATEGORIES:
                listed = ", ".join(CATEGORIES)
                raise BadData(f"{self._where('category', at, 'name')}: found {category!r}, expected one of {listed}")
            categories[token_of(token, self._where("category", at, "token"))] = category
        columns = ("token", "category_token", "width", "length", "height")
        rows = self._database.rows("track", columns)
        names = tuple(categories.values())
        kinds = self._links(rows, 1, {token: at for at, token in enumerate(categories)}, "track", "category")
        sizes = measured(rows, 2, self._row_of("track"), columns[2:])
        tokens = self._by_token(rows, "track")
        return {token: Track(names[kinds[at]], *map(float, sizes[at])) for token, at in tokens.items()}

    def _by_token(self, rows: Sequence[Row], table: str) -> dict[str, int]:
        """Returns the row of each token, in the order of the rows."""
        found = {token_of(row[0], self._where(table, at, "token")): at for at, row in enumerate(rows)}
        if len(found) != len(rows):
            raise BadData(f"{self._database.name}: table {table} has a token twice; fetch the file again")
        return found

    def _links(self, rows: Sequence[Row], at: int, known: Mapping[str, int], table: str, other: str) -> Int64:
        """Returns the rows of another table that a column of tokens leads to."""
        links = np.empty(len(rows), np.int64)
        for number, row in enumerate(rows):
            where = self._where(table, number, f"{other}_token")
            token = token_of(row[at], where)
            if token not in known:
                raise BadData(f"{where}: {token} is no row of table {other}; fetch the file again")
            links[number] = known[token]
        return links

    def _refuse_boxes_without_sweep(self) -> None:
        """Raises BadData for a box that is of no sweep: it would be in no sample, and nobody would miss it."""
        nowhere = "WHERE lidar_pc_token IS NULL OR lidar_pc_token NOT IN (SELECT token FROM lidar_pc) LIMIT 1"
        for token, sweep in self._database.rows("lidar_box", ("token", "lidar_pc_token"), nowhere):
            where = f"{self._database.name}: table lidar_box, token {token_of(token, 'table lidar_box, token')}"
            found = token_of(sweep, f"{where}, lidar_pc_token")
            raise BadData(f"{where}: lidar_pc_token {found} is no row of table lidar_pc; fetch the file again")

    def _row_of(self, table: str) -> Callable[[int], str]:
        return lambda row: f"{self._database.name}: table {table}, row {row + 1}"

    def _where(self, table: str, row: int, column: str) -> str:
        return f"{self._row_of(table)(row)}, {column}"


CATEGORIES = ("vehicle", "pedestrian", "bicycle", "traffic_cone", "barrier", "czone_sign", "generic_object")
