"""A writer that is killed by SIGKILL before or after any step of any write: no `finally` runs, and nothing is lost."""

from pathlib import Path
from typing import Any

import pytest

from lead_protocol.object_keys import CacheKeys
from lead_protocol.store.folder import FolderStore
from lead_testing.built_caches import build_and_publish
from lead_testing.bytes_recipe import MemoryTree
from lead_testing.data_faults import build_test_cache, deliver
from lead_testing.killed_writers import count_steps, kill_at
from lead_trainer.data.fsck import fsck_cache

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
STEPS = {f"{when} {what}" for when in ("before", "after") for what in ("write", "_sync", "sync_folder")}
DEATHS_OF_A_FILL = 16


def objects(store: FolderStore) -> dict[str, bytes]:
    """What readers of caches see, by key; parts of writers are no objects."""
    return {info.key: store.get(info.key, max_bytes=1 << 20) for info in store.list("caches/")}


def test_a_build_killed_at_any_step_of_a_write_shows_nothing_torn_and_ends_in_the_same_bytes(
    job: Any, recipe: Any, tmp_path: Path
) -> None:
    tree = MemoryTree({f"{route}/0": route.encode() * 30 for route in ("r1", "r2")})

    def build(store: FolderStore) -> str:
        return build_and_publish(job(), store, tree, recipe, lambda record: None, part_bytes=1000, processes=0).digest

    clean = FolderStore(tmp_path / "clean")
    steps = count_steps(lambda: build(clean))
    digest, expected = build(clean), objects(clean)
    assert STEPS | {"before link", "after link", "after replace"} <= set(steps)
    for step, name in enumerate(steps):
        store = FolderStore(tmp_path / str(step))
        kill_at(lambda store=store, step=step: build(store), step)  # type: ignore[misc]
        seen = objects(store)
        assert seen.items() <= expected.items(), f"killed {name}, step {step}: a torn object can be seen"
        assert build(store) == digest and objects(store) == expected, f"killed {name}, step {step}"
        assert fsck_cache(store, CacheKeys("local", digest)) == [] and store.head(job().keys.result(1)) is not None


def test_a_fill_killed_at_any_step_of_a_write_leaves_only_whole_shards_and_no_lock(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    digest = build_test_cache(store)
    clean = deliver(store, digest, None).digest

    def fill(folder: Path) -> None:
        deliver(store, digest, folder, threads=1)

    steps = count_steps(lambda: fill(tmp_path / "whole"))
    assert STEPS | {"before replace", "after replace"} <= set(steps)
    for step in range(0, len(steps), max(1, len(steps) // DEATHS_OF_A_FILL)):
        folder = tmp_path / f"ssd{step}"
        kill_at(lambda folder=folder, step=step: fill(folder), step)  # type: ignore[misc]
        found = deliver(store, digest, folder)
        assert found.digest == clean and found.stats.corrupt == 0, f"killed {steps[step]}, step {step}"
        assert not found.stats.degraded and not list((folder / "shards").glob("*.part"))
