"""One small made-up nuScenes tree, the cache of it, and the golden tree where the reference values are."""

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
from lead_trainer.example_worlds.world.tree import ExampleTree, write_example_tree
from lead_trainer.recipes.world.data_keys import CurriculumKeys, DataKeys, ReadsWindows
from lead_trainer.recipes.world.preparation import WorldPreparation

SIZE = (32, 48)
EXAMPLE = ExampleTree(train=6, val=2, keyframes=8, size=SIZE, without_can=1)
SMALL: dict[str, Any] = {"image_size": list(SIZE), "sequence_length": 4}


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of six training and two validation scenes of eight keyframes; the last one without CAN bus."""
    root = tmp_path_factory.mktemp("nuscenes")
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
    with tarfile.open(shared_dir() / "golden/nuscenes_world/tree.tar.gz") as packed:
        packed.extractall(root, filter="data")
    return root


def build(root: Path, store: Any, *, part_bytes: int = 15_000, **data: Any) -> CacheReader:
    """Returns the cache of a tree, in shards of about two scenes."""
    config = {"data": {key: value for key, value in {**SMALL, **data}.items() if key != "sequence_length"}}
    recipe = bytes_recipe(WorldPreparation())
    job = whole_build("world", ["train", "val"], config, path=str(root))
    done = build_and_publish(job, store, FolderTree(root), recipe, lambda record: None, part_bytes=part_bytes)
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
def a_config() -> Callable[..., ReadsWindows]:
    """Returns the part of a config that samples read; keyword arguments are keys of its section `data`."""

    def made(curriculum: CurriculumKeys | None = None, seed: int = 7, **data: Any) -> ReadsWindows:
        keys = DataKeys.model_validate({**SMALL, **data})
        chosen = curriculum or CurriculumKeys()
        found: ReadsWindows = SimpleNamespace(seed=seed, data_root="", data=keys, curriculum=chosen)
        return found

    return made
