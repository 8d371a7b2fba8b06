"""Pods of one build share the reading of logs: each opens those whose scenes it prepares, and the cache is the same."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lead_protocol.cache_publication import publish_staged
from lead_protocol.job import BuildJob
from lead_protocol.progress_record import BuildRecord
from lead_protocol.store.folder import FolderStore
from lead_testing.built_caches import whole_build
from lead_testing.bytes_recipe import bytes_recipe
from lead_trainer.data import scan_pieces
from lead_trainer.data.build import build_share
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadData
from lead_trainer.recipes.nuplan.preparation import NuplanPreparation
from unit.nuplan_data.conftest import CACHED

PODS = 4


class CountingTree(FolderTree):
    """A tree that notes which databases of logs are fetched from it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.logs: list[str] = []

    def local_file(self, path: str) -> Path:
        """Returns where a file lies, and notes it."""
        if path.endswith(".db"):
            self.logs.append(path.rpartition("/")[2])
        return super().local_file(path)


def a_share(root: Path, index: int, pods: int = PODS) -> BuildJob:
    job = whole_build("nuplan", ["train", "val"], {"data": CACHED}, path=str(root))
    return job.model_copy(update={"index": index, "parallelism": pods})


def a_pod(job: BuildJob, store: Any, tree: CountingTree) -> BuildRecord:
    recipe = bytes_recipe(NuplanPreparation())
    return build_share(job, store, tree, recipe, lambda record: None, part_bytes=1, processes=0)


def published(root: Path, store: FolderStore, digest: str, job: BuildJob) -> dict[str, bytes]:
    """Returns every object of the published cache."""
    publish_staged(store, job.keys, digest)
    prefix = job.keys.staged(digest).published.prefix
    return {info.key: store.get(info.key, max_bytes=10**8) for info in store.list(prefix)}


def test_four_pods_open_each_log_once_and_make_the_bytes_that_one_makes(example: Path, tmp_path: Path) -> None:
    one, four = FolderStore(tmp_path / "one"), FolderStore(tmp_path / "four")
    alone, trees = CountingTree(example), [CountingTree(example) for _ in range(PODS)]
    done = a_pod(a_share(example, 0, pods=1), one, alone)
    with ThreadPoolExecutor(PODS) as pods:
        ends = list(pods.map(lambda index: a_pod(a_share(example, index), four, trees[index]), range(PODS)))
    assert len(alone.logs) == PODS and {end.digest for end in ends} == {done.digest}
    assert sorted(len(tree.logs) for tree in trees) == [1] * PODS
    assert {name for tree in trees for name in tree.logs} == set(alone.logs)
    last = a_pod(a_share(example, 0), four, CountingTree(example))  # the parts of all are there
    assert last.phase == "Done" and last.samples == done.samples
    assert published(example, one, done.digest, a_share(example, 0, pods=1)) == published(
        example, four, done.digest, a_share(example, 0)
    )


def test_a_pod_whose_others_do_not_come_scans_all_logs_itself(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_pieces, "MIN_WAIT_S", 0.0)
    store, tree = FolderStore(tmp_path), CountingTree(example)
    assert a_pod(a_share(example, 0), store, tree).samples > 0 and len(tree.logs) == PODS
    later = CountingTree(example)
    assert a_pod(a_share(example, 1), store, later).samples > 0
    assert len(later.logs) == 1  # of its scenes alone: the scan is there


def test_a_damaged_scan_of_another_pod_is_refused_with_the_remedy(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_pieces, "MIN_WAIT_S", 0.0)
    store = FolderStore(tmp_path)
    digest = a_pod(a_share(example, 0), store, CountingTree(example)).digest
    store.put(a_share(example, 0).keys.staged(digest).scan_piece(2), b'{"city": [')
    with pytest.raises(BadData, match=r"another pod of this build read of a log is damaged.*build again"):
        a_pod(a_share(example, 1), store, CountingTree(example))
