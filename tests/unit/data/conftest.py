"""A recipe of nothing but bytes, a tree in memory, and a store that fails on purpose."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lead_protocol.job import BuildJob, FolderSource, OwnerIdentity
from lead_protocol.store.folder import FolderStore
from lead_testing.bytes_recipe import FailingStore, MemoryTree, bytes_recipe
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.training_keys import TrainingKeys


@pytest.fixture
def tree() -> MemoryTree:
    return MemoryTree({f"{r}/{f}": bytes([f + 1]) * (40 + f) for r in ("r1", "r2", "x3") for f in range(6)})


@pytest.fixture
def recipe() -> Recipe[TrainingKeys]:
    return bytes_recipe()


@pytest.fixture
def store(tmp_path: Path) -> FailingStore:
    return FailingStore(FolderStore(tmp_path / "store"))


@pytest.fixture
def fresh_store(tmp_path: Path) -> Callable[..., FailingStore]:
    """Returns stores in folders of their own."""
    count = iter(range(10**6))
    return lambda **options: FailingStore(FolderStore(tmp_path / f"store{next(count)}"), **options)


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mounts a volume of some bytes; skips where that is not allowed."""
    folder = tmp_path / "volume"
    folder.mkdir()

    def mounted(size: int, options: str = "") -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size},{options}", "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a small volume cannot be mounted: {done.stderr.strip()}")
        return folder

    yield mounted
    if folder.is_mount():
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # shards may still be open


@pytest.fixture
def job() -> Callable[..., BuildJob]:
    """Returns the job of worker `index`, with any field changed."""

    def make(**changes: Any) -> BuildJob:
        values: dict[str, Any] = {
            "owner": OwnerIdentity(namespace="local", name="cache", uid="uid"),
            "generation": 1,
            "attempt": 1,
            "index": 0,
            "parallelism": 1,
            "recipe": "bytes",
            "source": FolderSource(path="tree"),
            "collections": ["all"],
        }
        return BuildJob(**{**values, **changes})

    return make
