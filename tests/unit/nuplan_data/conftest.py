"""One small made-up nuPlan tree, the cache of it, and the golden tree where the reference values are."""

import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lead_protocol.store.folder import FolderStore
from lead_testing import shared_dir
from lead_testing.built_caches import build_and_publish, whole_build
from lead_testing.bytes_recipe import FailingStore, bytes_recipe
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.example_worlds.nuplan.tree import ExampleTree, write_example_tree
from lead_trainer.recipes.nuplan.data_keys import DataKeys, ReadsSamples
from lead_trainer.recipes.nuplan.preparation import NuplanPreparation

EXAMPLE = ExampleTree(logs=4, seconds=2, blobs_every=10, size=(48, 80), cars=4)
CACHED: dict[str, Any] = {
    "cameras": ["CAM_F0", "CAM_L0", "CAM_R0"], "image_size": [24, 40], "range_m": 32.0, "cell_m": 1.6,
    "max_agents": 16,
}  # fmt: skip
SMALL: dict[str, Any] = {**CACHED, "pillar_m": 0.8, "window_s": 1.0, "stride_s": 0.5}


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of four logs, two a city, each with four labelled sweeps."""
    root = tmp_path_factory.mktemp("nuplan")
    write_example_tree(root, EXAMPLE)
    return root


@pytest.fixture
def copy(example: Path, tmp_path: Path) -> Path:
    """A tree of one's own to change."""
    return Path(shutil.copytree(example, tmp_path / "tree"))


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference tree, unpacked."""
    root = tmp_path_factory.mktemp("golden")
    with tarfile.open(shared_dir() / "golden/nuplan/tree.tar.gz") as packed:
        packed.extractall(root, filter="data")
    return root


def build(root: Path, store: Any, **data: Any) -> CacheReader:
    """Returns the cache of a tree."""
    recipe = bytes_recipe(NuplanPreparation())
    job = whole_build("nuplan", ["train", "val"], {"data": {**CACHED, **data}}, path=str(root))
    done = build_and_publish(job, store, FolderTree(root), recipe, lambda record: None, part_bytes=50_000)
    return CacheReader(store, done.digest)


@pytest.fixture(scope="session")
def built(example: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[FailingStore, CacheReader]:
    """The example's cache, in a store that counts reads."""
    store = FailingStore(FolderStore(tmp_path_factory.mktemp("store")))
    return store, build(example, store)


@pytest.fixture
def cache(built: tuple[FailingStore, CacheReader]) -> CacheReader:
    return built[1]


@pytest.fixture
def a_config() -> Callable[..., ReadsSamples]:
    """Returns the part of a config that samples read; keyword arguments are keys of its section `data`."""

    def made(seed: int = 7, **data: Any) -> ReadsSamples:
        keys = DataKeys.model_validate({**SMALL, **data})
        found: ReadsSamples = SimpleNamespace(seed=seed, data_root="", data=keys)
        return found

    return made
