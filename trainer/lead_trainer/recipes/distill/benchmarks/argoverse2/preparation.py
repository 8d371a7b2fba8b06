"""How a raw Argoverse 2 tree becomes cache records: `<split>/<scenario>/` folders, forecasting or sensor data.

A route is `<split>/<scenario>/<track>`, a frame the present step. The collections `train`, `val` and `test` hold the
focal track of every whole scenario; `windows_train` and `windows_val` every track over time. A folder that cannot be
used is a verdict with its reason, never replaced by another. Scanning reads every scenario and its map once, because
only their content shows whether they are complete.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa

from lead_trainer.contract.preparation import Preparation
from lead_trainer.contract.raw_data import RouteVerdict, SampleKey, Scan, SourceFile, SourceTree
from lead_trainer.data.array_block import pack_arrays
from lead_trainer.data.ordered_pool import ordered_map
from lead_trainer.data.plain_scan import known_collections, plain_scan
from lead_trainer.errors import BadData
from lead_trainer.recipes.distill.benchmarks.argoverse2.scenario import OBJECT_TYPES, Scenario, read_scenario
from lead_trainer.recipes.distill.benchmarks.argoverse2.sensor_log import read_sensor_log
from lead_trainer.recipes.distill.benchmarks.argoverse2.vector_map import Polyline, read_vector_map
from lead_trainer.recipes.distill.benchmarks.argoverse2.window_arrays import window_arrays
from lead_trainer.recipes.distill.benchmarks.argoverse2.windows import focal_window, windows
from lead_trainer.recipes.distill.config_values import config_of_cache
from lead_trainer.recipes.prepare_keys import DigestedKeys

SPLITS = ("train", "val", "test")
FOCAL = {split: split for split in SPLITS}
WINDOWS = {f"windows_{split}": split for split in ("train", "val")}
COLLECTIONS = (*FOCAL, *WINDOWS)
SCAN_THREADS = 8


@dataclass
class _Folder:
    """One scenario's files and what was found in it."""

    path: str  # <split>/<scenario>
    files: dict[str, SourceFile] = field(default_factory=dict)

    @property
    def split(self) -> str:
        return self.path.split("/")[0]

    def named(self, start: str, end: str) -> str:
        """Returns the path of the file with this start and end; empty where there is none."""
        return next(
            (f.path for name, f in sorted(self.files.items()) if name.startswith(start) and name.endswith(end)), ""
        )

    @property
    def scenario(self) -> str:
        return self.named("scenario_", ".parquet")

    @property
    def annotations(self) -> str:
        return self.named("annotations", ".feather")

    @property
    def map(self) -> str:
        return self.named("log_map_archive_", ".json") or self.named("map/log_map_archive_", ".json")


@dataclass(frozen=True)
class _Judged:
    """A folder's verdict and its windows, by kind of collection."""

    folder: _Folder
    reason: str
    steps: int = 0
    focal: tuple[tuple[str, int], ...] = ()
    windows: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class WindowKeys(DigestedKeys):
    """How far a window's map and agents reach, and how densely its lines are sampled."""

    vector_radius_m: float
    polyline_points: int


class Argoverse2Preparation(Preparation):
    """The preparation; pure in (tree, keys)."""

    version = "argoverse2-prepare/1"
    default_collections: tuple[str, ...] = ("train", "val")

    def all_collections(self) -> Sequence[str]:
        """Returns the splits."""
        return COLLECTIONS

    def config_keys(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the read values; `config` holds the recipe's keys and optionally `preset`. Raises BadConfig."""
        return WindowKeys.of(config_of_cache(config)).as_mapping()

    def scan(self, tree: SourceTree, config: Mapping[str, Any], collections: Sequence[str]) -> Scan:
        """Reads every scenario and fills the named collections."""
        names = known_collections(collections, COLLECTIONS)
        folders = _folders(tree.files())
        if not folders:
            raise BadData("the tree has no folder <split>/<scenario> with split train, val or test; correct the source")
        with_windows = any(name in WINDOWS for name in names)
        judged = list(ordered_map(lambda folder: _judge(tree, folder, with_windows), folders, SCAN_THREADS))
        size = {one.folder.path: sum(file.size for file in one.folder.files.values()) for one in judged}
        return plain_scan(
            (RouteVerdict(one.folder.path, one.reason == "kept", one.reason, one.steps) for one in judged),
            {name: _keys(name, judged) for name in names},
            lambda key: size[key.route.rpartition("/")[0]],
        )

    def record(self, tree: SourceTree, config: Mapping[str, Any], sample: SampleKey) -> Mapping[str, bytes]:
        """Returns the arrays of one window; raises BadData naming file and route."""
        path, _, track = sample.route.rpartition("/")
        arrays = window_arrays(
            _scenario(tree, _folder_at(tree, path)), map_of(tree, path), track, sample.frame,
            radius_m=config["vector_radius_m"], points=config["polyline_points"],
        )  # fmt: skip
        return {"arrays": pack_arrays(arrays, compress=True)}

    def route_metas(self, tree: SourceTree, config: Mapping[str, Any], route: str, frames: Sequence[int]) -> pa.Table:
        """Returns the names of a track, one row a frame."""
        path, _, track = route.rpartition("/")
        scenario = _scenario(tree, _folder_at(tree, path))
        row = scenario.track(track)
        same = {
            "scenario_id": scenario.name,
            "track_id": track,
            "city": scenario.city,
            "object_type": OBJECT_TYPES[scenario.types[row]],
        }
        columns = {name: pa.array([value] * len(frames), pa.string()) for name, value in same.items()}
        return pa.table({"frame": pa.array(frames, pa.int32()), **columns})


def map_of(tree: SourceTree, path: str) -> tuple[Polyline, ...]:
    """Returns the map of a folder `<split>/<scenario>`; raises BadData where it cannot be read."""
    return _map(tree, _folder_at(tree, path))


def _folders(files: Iterable[SourceFile]) -> list[_Folder]:
    found: dict[str, _Folder] = {}
    for file in files:
        split, _, rest = file.path.partition("/")
        name, _, inside = rest.partition("/")
        if split in SPLITS and inside:
            path = f"{split}/{name}"
            found.setdefault(path, _Folder(path)).files[inside] = file
    return [found[path] for path in sorted(found)]


def _folder_at(tree: SourceTree, path: str) -> _Folder:
    files = tree.files()
    folder = _Folder(path)
    for file in islice(files, bisect_left(files, f"{path}/", key=lambda file: file.path), None):
        if not file.path.startswith(f"{path}/"):
            break
        folder.files[file.path[len(path) + 1 :]] = file
    return folder


def _judge(tree: SourceTree, folder: _Folder, with_windows: bool) -> _Judged:
    if not folder.scenario and not folder.annotations:
        return _Judged(folder, "no_scenario")
    if not folder.map:
        return _Judged(folder, "no_map")
    try:
        scenario = _scenario(tree, folder)
    except BadData:
        return _Judged(folder, "unreadable")
    try:
        _map(tree, folder)
    except BadData:
        return _Judged(folder, "unreadable_map", scenario.steps)
    focal = focal_window(scenario, with_future=folder.split != "test")
    if folder.scenario and focal is None:
        return _Judged(folder, "focal_track_incomplete", scenario.steps)
    several = tuple(windows(scenario)) if with_windows and folder.split != "test" else ()
    return _Judged(folder, "kept", scenario.steps, (focal,) if focal else (), several)


def _keys(name: str, judged: Sequence[_Judged]) -> list[SampleKey]:
    split = FOCAL.get(name) or WINDOWS[name]
    return [
        SampleKey(f"{one.folder.path}/{track}", present)
        for one in judged
        if one.folder.split == split
        for track, present in (one.focal if name in FOCAL else one.windows)
    ]


def _map(tree: SourceTree, folder: _Folder) -> tuple[Polyline, ...]:
    return read_vector_map(tree.read(folder.map), folder.map)


def _scenario(tree: SourceTree, folder: _Folder) -> Scenario:
    if folder.scenario:
        return read_scenario(tree.read(folder.scenario), folder.scenario)
    poses = folder.named("city_SE3_egovehicle", ".feather") or f"{folder.path}/city_SE3_egovehicle.feather"
    return read_sensor_log(tree.read(folder.annotations), tree.read(poses), folder.path)
