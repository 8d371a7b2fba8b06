"""nuScenes as scenes of one camera, with actions from the CAN bus, and from poses where there is none."""

import threading

import numpy as np
import structlog

from lead_trainer.contract.raw_data import SourceTree
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.world.ingest.can_bus import can_actions, can_file
from lead_trainer.recipes.world.ingest.nuscenes_tables import (
    SceneRow,
    Shot,
    Tables,
    read_poses,
    read_tables,
    version_of,
)
from lead_trainer.recipes.world.ingest.pose_actions import pose_actions
from lead_trainer.recipes.world.ingest.scenes import (
    MAX_JSON_BYTES,
    Actions,
    Float32,
    Scene,
    SceneSource,
    refuse_large,
    sorted_out,
)
from lead_trainer.recipes.world.ingest.splits import splits
from lead_trainer.recipes.world.prepare_keys import SWEEPS, WorldKeys

log = structlog.get_logger(__name__)


class NuscenesScenes(SceneSource):
    """The scenes of a tree with tables, `samples/`, `sweeps/` and, where it was fetched, `can_bus/`."""

    def __init__(self, tree: SourceTree, keys: WorldKeys) -> None:
        self._tree, self._version = tree, version_of(tree, keys.version)
        self._files = {file.path: file.size for file in tree.files()}
        tables = read_tables(tree, self._version, keys.camera)
        names = [row.name for row in tables.scenes]
        split = splits(names, self._version, keys.split, keys.val_share, keys.split_seed)
        self._shots = {row.name: _shots(tables, row, keys.frames) for row in tables.scenes}
        keyframes = tables.keyframe_tokens
        self._sweeps = [shot.file for token, shot in tables.shots.items() if token not in keyframes]
        self._camera = keys.camera
        found = [_scene(row, split[row.name], self._shots[row.name]) for row in tables.scenes]
        self.scenes, self.verdicts = sorted_out(found, self._files)
        self._lock = threading.Lock()
        self._from_poses: dict[str, Float32] | None = None
        lacking = sorted(scene.name for scene in self.scenes.values() if not self._can_file(scene))
        if lacking:
            log.warning("scenes have no CAN bus messages; their actions are estimated from poses",
                        scenes=len(lacking), first=lacking[0])  # fmt: skip

    def actions(self, scene: Scene) -> Actions:
        """Returns pedals and wheel of the CAN bus, or an estimate from poses."""
        if path := self._can_file(scene):
            refuse_large(path, self._files[path], MAX_JSON_BYTES)
            return Actions(can_actions(self._tree.read(path), path, scene.timestamps), "can")
        return Actions(self.actions_from_poses(scene), "poses")

    def actions_from_poses(self, scene: Scene) -> Float32:
        """Returns the estimate (T-1, 4), whether there are messages or not."""
        with self._lock:
            if self._from_poses is None:
                self._from_poses = {}
            if scene.name not in self._from_poses:
                self._read_poses(scene)
            return self._from_poses[scene.name]

    def refuse_no_sweeps(self) -> None:
        """Raises BadConfig where a tree that shall give sweeps has none; a scene without one of its own is left out."""
        if any(file in self._files for file in self._sweeps):
            return
        table = f"{self._version}/sample_data.json"
        lacking = (
            f"the tree has none of the {len(self._sweeps)} pictures that table {table} names for them; fetch the sweeps"
            if self._sweeps
            else f"table {table} has only keyframes of {self._camera}; fetch the whole tables"
        )
        raise BadConfig(f"data.frames: found {SWEEPS!r}, but {lacking}, or set data.frames=keyframes")

    def _read_poses(self, scene: Scene) -> None:
        """Reads the poses of all scenes that need them at once: the table is large."""
        assert self._from_poses is not None
        wanted = {
            each.name: each for each in (*self.scenes.values(), scene) if each == scene or not self._can_file(each)
        }
        tokens = {shot.pose for name in wanted for shot in self._shots[name]}
        poses = read_poses(self._tree, self._version, tokens)
        for name, each in wanted.items():
            rows = np.stack([poses[shot.pose] for shot in self._shots[name]])
            self._from_poses[name] = pose_actions(rows, each.timestamps)

    def _can_file(self, scene: Scene) -> str:
        path = can_file(scene.name)
        return path if path in self._files else ""


def _shots(tables: Tables, row: SceneRow, frames: str) -> list[Shot]:
    return tables.sweeps_of(row) if frames == SWEEPS else tables.keyframes_of(row)


def _scene(row: SceneRow, split: str, shots: list[Shot]) -> Scene:
    times = np.array([shot.timestamp for shot in shots], np.int64)
    return Scene(row.name, split, row.location, tuple(shot.file for shot in shots), times)
