"""Caches of generated benchmark trees, built once a module, and the real samples where they are at hand."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from lead_protocol.store.folder import FolderStore
from lead_testing import shared_dir
from lead_testing.built_caches import build_and_publish, whole_build
from lead_testing.bytes_recipe import bytes_recipe
from lead_testing.forecasting_trees import write_argoverse2_tree, write_nuscenes_tree
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.source_tree import FolderTree

REAL_SCENARIO = "0a1e6f0a-1817-4a98-b02e-db8c9327d151"
REAL_LOG = "7fab2350-7eaf-3b7e-a39d-6937a4c1bede"


def cache_of(
    preparation: Any, root: Path, store: Path, collections: list[str], config: Mapping[str, Any] | None = None
) -> CacheReader:
    """Builds a tree's cache as a DatasetCache would and opens it."""
    job = whole_build("distill", collections, config, str(root))
    folder = FolderStore(store)
    recipe = bytes_recipe(preparation)
    digest = build_and_publish(job, folder, FolderTree(root, links_may_leave=True), recipe, lambda record: None).digest
    return CacheReader(folder, digest)


@pytest.fixture(scope="module")
def build_cache(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., CacheReader]:
    """Returns `cache_of` with a store of its own a call."""
    return lambda preparation, root, collections, config=None: cache_of(
        preparation, root, tmp_path_factory.mktemp("store"), collections, config
    )


@pytest.fixture(scope="module")
def argoverse2_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two training scenarios, one for validation, one of the test split."""
    root = tmp_path_factory.mktemp("argoverse2")
    write_argoverse2_tree(root, {"train": 2, "val": 1, "test": 1})
    return root


@pytest.fixture(scope="module")
def real_argoverse2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree whose `train` and `val` are links to the real scenario, and whose `train` has the real sensor log."""
    data = shared_dir() / "realdata/av2/test_data"
    if not data.is_dir():
        pytest.skip(f"the real Argoverse 2 samples are not at {data}: they are not part of the repository")
    root = tmp_path_factory.mktemp("real_argoverse2")
    for split in ("train", "val"):
        (root / split).mkdir()
        link_files(data / "forecasting_scenarios" / REAL_SCENARIO, root / split / REAL_SCENARIO)
    link_files(data / "sensor/val" / REAL_LOG, root / "train" / REAL_LOG)
    return root


def link_files(source: Path, target: Path) -> None:
    """Makes a folder tree of links to a tree's files."""
    for path in source.rglob("*"):
        if path.is_file():
            link = target / path.relative_to(source)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)


@pytest.fixture(scope="module")
def nuscenes_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The generated mini set."""
    root = tmp_path_factory.mktemp("nuscenes")
    write_nuscenes_tree(root)
    return root


@pytest.fixture(scope="module")
def real_nuscenes() -> Path:
    """The tree of one real keyframe."""
    root = shared_dir() / "realdata/nuscenes/nuscenes_format_onesample"
    if not root.is_dir():
        pytest.skip(f"the real nuScenes keyframe is not at {root}: it is not part of the repository")
    return root
