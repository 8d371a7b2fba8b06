"""The nuScenes tables that a drive's pictures need: scenes, keyframes, one camera's data, and ego poses on demand.

Reads `<version>/{scene,log,sample,sensor,calibrated_sensor,sample_data,ego_pose}.json`; schema: nuscenes-devkit,
`docs/schema_nuscenes.md`. `sample_data` and `ego_pose` have millions of rows: they are read one by one, and rows of
other sensors are dropped at once.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from lead_trainer.contract.raw_data import SourceTree
from lead_trainer.data.raw_json import raw_json_rows
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.world.ingest.scenes import field_of

Link = TypeVar("Link")


@dataclass(frozen=True, slots=True)
class SceneRow:
    """One drive of some 20 s."""

    token: str
    name: str
    location: str
    first_sample: str
    last_sample: str
    samples: int  # of its chain


@dataclass(frozen=True, slots=True)
class SampleRow:
    """One moment of a scene."""

    scene: str  # token
    next: str  # token, empty at the end


@dataclass(frozen=True, slots=True)
class Shot:
    """One picture of the camera."""

    token: str
    sample: str
    file: str
    timestamp: int  # us
    pose: str  # token
    next: str  # token, empty at the end


@dataclass(frozen=True)
class Tables:
    """Rows by token."""

    scenes: tuple[SceneRow, ...]
    samples: Mapping[str, SampleRow]
    shots: Mapping[str, Shot]
    keyframes: Mapping[str, Shot]  # by sample

    @property
    def keyframe_tokens(self) -> set[str]:
        """Tokens of the shots that are keyframes."""
        return {shot.token for shot in self.keyframes.values()}

    def keyframes_of(self, scene: SceneRow) -> list[Shot]:
        """Returns the camera's keyframes; raises BadData for a chain that leads nowhere, in a circle or elsewhere.

        Raises BadData, too, for a chain that does not end where the scene's row says.
        """
        found = []
        for token, sample in _chain(scene.name, "sample", scene.first_sample, self.samples, lambda row: row.next):
            if sample.scene != scene.token:
                raise _leads_elsewhere(scene, "sample", token)
            found.append(_known(self.keyframes, token, scene.name, "keyframe of sample"))
        if (found[-1].sample, len(found)) != (scene.last_sample, scene.samples):
            raise BadData(
                f"{scene.name}: its chain of sample ends at row {found[-1].sample!r:.40} after {len(found)} samples, "
                f"expected row {scene.last_sample!r:.40} after {scene.samples} by last_sample_token and nbr_samples of "
                "table scene; fetch all tables of one version again"
            )
        return found

    def sweeps_of(self, scene: SceneRow) -> list[Shot]:
        """Returns keyframes and the sweeps after them; raises BadData like `keyframes_of`."""
        keyframes = self.keyframes_of(scene)
        samples, found = {shot.sample for shot in keyframes}, []
        for token, shot in _chain(scene.name, "sample_data", keyframes[0].token, self.shots, lambda shot: shot.next):
            if shot.sample not in samples:
                raise _leads_elsewhere(scene, "sample_data", token)
            found.append(shot)
        passed = {shot.token for shot in found}
        if left_out := [shot.token for shot in keyframes if shot.token not in passed]:
            raise BadData(
                f"{scene.name}: its chain of sample_data ends at row {found[-1].token!r:.40} without keyframe "
                f"{left_out[0]!r:.40}, expected one through all keyframes; fetch all tables of one version again"
            )
        return found


def version_of(tree: SourceTree, wanted: str) -> str:
    """Returns the folder of the tables; raises BadConfig where it is not there, or several are and none is named."""
    found = sorted(
        file.path.partition("/")[0]
        for file in tree.files()
        if file.path.startswith("v1.0-") and file.path.count("/") == 1 and file.path.endswith("/scene.json")
    )
    if not found:
        raise BadData("the tree has no folder such as v1.0-mini with scene.json; unpack nuScenes' metadata there")
    if wanted and wanted not in found:
        raise BadConfig(f"data.version: found {wanted!r}, but the tree has {', '.join(found)}; name one of these")
    if not wanted and len(found) > 1:
        raise BadConfig(f"data.version: is not set, but the tree has {', '.join(found)}; name one of these")
    return wanted or found[0]


def read_tables(tree: SourceTree, version: str, camera: str) -> Tables:
    """Reads the tables of one camera; raises BadData naming table and row, BadConfig for an unknown camera."""
    places: dict[str, str] = {}
    for row in _rows(tree, version, "log"):
        _add(places, row, row.text("token"), row.text("location"))
    scenes: dict[str, SceneRow] = {}
    for row in _rows(tree, version, "scene"):
        _add(scenes, row, row.text("token"), _scene_row(row, places))
    if not scenes:
        raise BadData(f"table {version}/scene.json has no row; fetch the tables again")
    _refuse_twice([scene.name for scene in scenes.values()], f"{version}/scene.json")
    mounted = _mounted(tree, version, camera)
    shots: dict[str, Shot] = {}
    keyframes: dict[str, Shot] = {}
    for row in _rows(tree, version, "sample_data"):
        if row.text("calibrated_sensor_token") not in mounted:
            continue
        shot = Shot(
            row.text("token"), row.text("sample_token"), row.text("filename"), row.whole("timestamp"),
            row.text("ego_pose_token"), row.text("next"),
        )  # fmt: skip
        _add(shots, row, shot.token, shot)
        if row.flag("is_key_frame"):
            _add(keyframes, row, shot.sample, shot)
    samples: dict[str, SampleRow] = {}
    for row in _rows(tree, version, "sample"):
        _add(samples, row, row.text("token"), SampleRow(row.text("scene_token"), row.text("next")))
    return Tables(tuple(scenes.values()), samples, shots, keyframes)


def read_poses(tree: SourceTree, version: str, wanted: Collection[str]) -> dict[str, npt.NDArray[np.float64]]:
    """Returns x, y (m) and quaternion w, x, y, z by token, each (6,); raises BadData for one that is missing or odd."""
    found: dict[str, npt.NDArray[np.float64]] = {}
    for row in _rows(tree, version, "ego_pose"):
        if (token := row.text("token")) not in wanted:
            continue
        pose = np.array([*row.numbers("translation", 3)[:2], *row.numbers("rotation", 4)])
        if not np.linalg.norm(pose[2:]) > 0.0:
            raise BadData(f"{row.where}: rotation: found a quaternion of length 0, expected a unit one; fetch it again")
        _add(found, row, token, pose)
    if lacking := sorted(set(wanted) - found.keys()):
        raise BadData(f"table {version}/ego_pose.json has no row {lacking[0]}; fetch it again")
    return found


@dataclass(frozen=True)
class _Row:
    """A row whose fields are asked for by kind."""

    table: str
    row: Any

    @property
    def where(self) -> str:
        """Table and token, for messages."""
        token = self.row.get("token", "") if isinstance(self.row, dict) else ""
        return f"table {self.table}, row {token!r:.40}"

    def text(self, key: str) -> str:
        """Returns a text."""
        return str(field_of(self.row, key, str, self.where))

    def whole(self, key: str) -> int:
        """Returns a whole number that fits 64 bits."""
        value = int(field_of(self.row, key, int, self.where))
        if not 0 <= value < 1 << 62:
            raise BadData(f"{self.where}: {key}: found {value}, expected microseconds; fetch the file again")
        return value

    def flag(self, key: str) -> bool:
        """Returns true or false."""
        return bool(field_of(self.row, key, bool, self.where))

    def numbers(self, key: str, count: int) -> list[float]:
        """Returns finite numbers."""
        values = field_of(self.row, key, list, self.where)
        if len(values) != count or not all(type(each) in (int, float) and abs(each) < 1e12 for each in values):
            raise BadData(f"{self.where}: {key}: found {values!r:.60}, expected {count} finite numbers; fetch it again")
        return [float(each) for each in values]


def _rows(tree: SourceTree, version: str, name: str) -> Iterator[_Row]:
    table = f"{version}/{name}.json"
    data = tree.read(table)
    try:
        for row in raw_json_rows(data):
            yield _Row(table, row)
    except ValueError as error:
        raise BadData(f"file {table} is no list of rows: {error}; fetch it again") from error


def _mounted(tree: SourceTree, version: str, camera: str) -> set[str]:
    """Returns the calibrations of the camera on each car."""
    channels: dict[str, str] = {}
    for row in _rows(tree, version, "sensor"):
        _add(channels, row, row.text("token"), row.text("channel"))
    cameras = sorted({name for name in channels.values() if name.startswith("CAM")})
    if not cameras:
        raise BadData(f"table {version}/sensor.json has no camera, expected channels such as {camera}; fetch it again")
    if camera not in channels.values():
        raise BadConfig(f"data.camera: found {camera!r}, expected one of {', '.join(cameras)}")
    return {
        row.text("token")
        for row in _rows(tree, version, "calibrated_sensor")
        if channels.get(row.text("sensor_token")) == camera
    }


def _add(found: dict[str, Link], row: _Row, token: str, value: Link) -> None:
    """Keeps a value by a token that no other row has."""
    if not token:
        raise BadData(f"{row.where}: found an empty token, expected one of its own; fetch the tables again")
    if token in found:
        raise BadData(f"{row.where}: {token!r:.40} stands in an earlier row, too; fetch the tables again")
    found[token] = value


def _scene_row(row: _Row, places: Mapping[str, str]) -> SceneRow:
    return SceneRow(
        row.text("token"), row.text("name"), _place(places, row), row.text("first_sample_token"),
        row.text("last_sample_token"), int(field_of(row.row, "nbr_samples", int, row.where)),
    )  # fmt: skip


def _leads_elsewhere(scene: SceneRow, table: str, token: str) -> BadData:
    return BadData(
        f"{scene.name}: its chain of {table} leads to row {token!r} of another scene; fetch the tables again"
    )


def _place(places: Mapping[str, str], row: _Row) -> str:
    if (log := row.text("log_token")) not in places:
        raise BadData(
            f"{row.where}: log_token: found {log!r}, which is no row of the table log; fetch the tables again"
        )
    return places[log]


def _refuse_twice(names: list[str], table: str) -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise BadData(f"table {table} has two scenes named {twice[0]}; fetch it again")


def _chain(
    scene: str, table: str, token: str, rows: Mapping[str, Link], following: Callable[[Link], str]
) -> Iterator[tuple[str, Link]]:
    """Yields the rows of a chain from its first token on."""
    seen: set[str] = set()
    while token or not seen:
        if token in seen:
            raise BadData(
                f"{scene}: row {token!r} of the table {table} comes twice in its chain of `next`; fetch it again"
            )
        seen.add(token)
        link = _known(rows, token, scene, table)
        yield token, link
        token = following(link)


def _known(rows: Mapping[str, Link], token: str, scene: str, what: str) -> Link:
    if token not in rows:
        raise BadData(f"{scene}: {what} {token!r} is not in the tables; fetch all tables of one version again")
    return rows[token]
