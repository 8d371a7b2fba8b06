"""Which kind of raw tree there is, opened once a process."""

import threading
import weakref
from collections.abc import Callable, Mapping

from lead_trainer.contract.raw_data import SourceTree
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.world.ingest.carla_routes import CarlaRoutes
from lead_trainer.recipes.world.ingest.nuscenes_scenes import NuscenesScenes
from lead_trainer.recipes.world.ingest.processed_tree import METADATA, ProcessedTree
from lead_trainer.recipes.world.ingest.scenes import SceneSource
from lead_trainer.recipes.world.prepare_keys import SWEEPS, WorldKeys

SOURCES: Mapping[str, Callable[[SourceTree, WorldKeys], SceneSource]] = {
    "nuscenes": NuscenesScenes,
    "carla": CarlaRoutes,
    "processed": lambda tree, keys: ProcessedTree(tree),
}
# How the paths begin that a source reads.
FOLDERS = {
    "nuscenes": ("v1.0-", "can_bus/", "samples/", "sweeps/"),
    "carla": ("data/",),
    "processed": ("train/", "val/"),
}

_LOCK = threading.Lock()
_OPENED: "weakref.WeakKeyDictionary[SourceTree, dict[WorldKeys, SceneSource]]" = weakref.WeakKeyDictionary()


def open_source(tree: SourceTree, keys: WorldKeys) -> SceneSource:
    """Returns the tree's scenes; raises BadData or BadConfig naming what is missing or odd."""
    with _LOCK:
        opened = _OPENED.setdefault(tree, {})
        if keys not in opened:
            name = kind_of(tree) if keys.dataset == "auto" else keys.dataset
            source = SOURCES[name](tree, keys)
            if keys.frames == SWEEPS:
                _refuse_no_sweeps(source, name)
            opened[keys] = source
        return opened[keys]


def _refuse_no_sweeps(source: SceneSource, kind: str) -> None:
    """Raises BadConfig where keyframes would be used in the place of the sweeps that were asked for."""
    if not isinstance(source, NuscenesScenes):
        raise BadConfig(
            f"data.frames: found {SWEEPS!r}, which only trees of nuScenes have, but this one is of kind {kind}; remove "
            "the key"
        )
    source.refuse_no_sweeps()


def kind_of(tree: SourceTree) -> str:
    """Returns nuscenes, carla or processed by the folders; raises BadData where none of them fits."""
    for file in tree.files():
        first, _, rest = file.path.partition("/")
        if first.startswith("v1.0-") and rest == "scene.json":
            return "nuscenes"
        if first in ("train", "val") and rest.endswith(f"/{METADATA}"):
            return "processed"
        if first == "data" and "/metas/" in rest:
            return "carla"
    raise BadData(
        "the tree is none that recipe world knows: expected nuScenes' tables in v1.0-*/, a processed tree with "
        f"train/<scene>/{METADATA}, or LEAD's routes in data/; correct the folder"
    )
