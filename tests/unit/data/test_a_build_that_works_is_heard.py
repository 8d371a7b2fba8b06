"""What a build pod tells while it lists and reads: the operator replaces one that tells nothing new for too long."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lead_operator.decisions.dataset_cache.health import HANG_S
from lead_protocol.job import FolderSource
from lead_protocol.object_keys import CacheKeys
from lead_protocol.progress_record import BuildRecord, parse_build
from lead_protocol.store.folder import FolderStore
from lead_testing.built_caches import build_and_publish
from lead_testing.bytes_recipe import bytes_recipe
from lead_testing.makers import a_training_run
from lead_trainer import building
from lead_trainer.data import build
from lead_trainer.data.build_plan import PART_BYTES
from lead_trainer.data.source_tree import FolderTree, StoreTree
from lead_trainer.storage import LIMITS

Make = Callable[..., Any]


class HeardStore(FolderStore):
    """A store that keeps every word that was written into a writer."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.words: list[BuildRecord] = []

    def put(self, key: str, data: bytes) -> None:
        super().put(key, data)
        if "/progress/" in key and (word := parse_build(data)) is not None:
            self.words.append(word)


def a_raw_tree(folder: Path) -> Path:
    for route in ("r1", "r2"):
        (folder / route).mkdir(parents=True)
        for frame in range(6):
            (folder / route / str(frame)).write_bytes(bytes([frame + 1]) * 40)
    return folder


def heard(job: Make, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[BuildRecord]:
    """Builds a small tree as a pod does; returns what was heard of it."""
    store = HeardStore(folder / "store")
    monkeypatch.setattr(building, "open_store", lambda environ, access: store)
    monkeypatch.setattr(building, "load_recipe", lambda name: bytes_recipe())
    source = FolderSource(path=str(a_raw_tree(folder / "raw")))
    assert building.run_build_job(job(source=source), folder / "last-word", {}) == 0
    return store.words


def test_a_build_is_heard_while_it_lists_and_reads_before_there_is_news(
    job: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = heard(job, tmp_path / "quiet", monkeypatch)
    monkeypatch.setattr(building, "REPEAT_S", 0.0)
    words = heard(job, tmp_path / "slow", monkeypatch)
    listing = [word for word in words if word.phase == "Listing"]
    assert len(listing) > len([word for word in quiet if word.phase == "Listing"]) + 6
    assert [word.seq for word in words] == sorted({word.seq for word in words}), "each word is a new one"
    assert words[-1].phase == "Done"


@pytest.mark.parametrize("kind", ["folder", "store"])
def test_a_tree_tells_of_every_file_that_it_lists_or_reads(kind: str, tmp_path: Path) -> None:
    signs: list[None] = []
    root = a_raw_tree(tmp_path)
    tree: FolderTree | StoreTree = FolderTree(root, lambda: signs.append(None))
    if kind == "store":
        tree = StoreTree(FolderStore(root), "", lambda: signs.append(None))
    assert len(tree.files()) == 12 == len(signs)
    tree.read("r1/3")
    assert len(signs) == 13


def test_a_pod_that_works_is_heard_long_before_it_counts_as_hung() -> None:
    assert a_training_run().failure_policy.hang_timeout_s == HANG_S
    longest_silence_s = LIMITS.total_for(PART_BYTES) + LIMITS.rotation_s  # a shard on its way to a slow store
    assert building.REPEAT_S + longest_silence_s < HANG_S


def test_a_build_is_heard_while_it_asks_for_every_part_of_a_large_cache(
    job: Make, store: Any, tree: Any, recipe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def after_the_last_part() -> int:
        words: list[BuildRecord] = []
        build_and_publish(job(), store, tree, recipe, words.append, part_bytes=150)
        store.delete(CacheKeys("local", words[-1].digest).manifest)  # another finds the parts, and finishes
        done = [number for number, word in enumerate(words) if word.shards_done == word.shards_total > 3]
        return len(words) - done[0]

    quiet = after_the_last_part()
    monkeypatch.setattr(build, "REPORT_EVERY_S", 0.0)
    assert after_the_last_part() > quiet + 3
