"""`retain: Delete`: the data of a deleted cache go when nobody uses them, in an order that leaves no false cache."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lead_operator.bucket.cache_data_gc import read_digests, remove_portion
from lead_operator.decisions.dataset_cache.plan import decide_cache_removal, decide_dataset_cache
from lead_operator.decisions.observed import ObservedBuild
from lead_operator.names import CACHE_DATA_FINALIZER
from lead_operator.resources.crd_defaults import fill_defaults
from lead_operator.resources.dataset_cache import DatasetCache, parse_dataset_cache
from lead_protocol.object_keys import BuildKeys, CacheKeys
from lead_protocol.store.folder import FolderStore
from lead_testing.makers import CACHE_UID, NOW, SETTINGS, a_cache_body, a_pod

MINE, OLDER, SHARED, OTHER = ("a1" * 32, "b2" * 32, "c3" * 32, "d4" * 32)
KEYS = BuildKeys("team-a", CACHE_UID)


def a_cache(retain: str, *, has_finalizer: bool = False) -> DatasetCache:
    body = a_cache_body(retain=retain)
    body["metadata"]["finalizers"] = [CACHE_DATA_FINALIZER] if has_finalizer else []
    return parse_dataset_cache(body)


@pytest.mark.parametrize(
    ("retain", "has_finalizer", "finalizer"),
    [("Retain", False, None), ("Retain", True, False), ("Delete", False, True), ("Delete", True, None)],
)
def test_only_a_cache_with_retain_delete_is_guarded(retain: str, has_finalizer: bool, finalizer: bool | None) -> None:
    assert (
        decide_dataset_cache(a_cache(retain, has_finalizer=has_finalizer), ObservedBuild(now=NOW), SETTINGS).finalizer
        is finalizer
    )


def test_a_deleted_cache_waits_for_those_that_use_it_and_names_them() -> None:
    cache, live = a_cache("Delete", has_finalizer=True), a_pod(0, name="towns-build-g1-a1-0", role="build", stage="")

    def observe(users: tuple[str, ...], after_s: float = 0, previous: dict[str, Any] | None = None) -> Any:
        now = NOW + timedelta(seconds=after_s)
        plan = decide_cache_removal(cache, ObservedBuild(now=now, pods=(live,), previous=previous or {}), users)
        fill_defaults({**a_cache_body(), "status": plan.status})
        return plan

    waiting = observe(("TrainingRun team-b/drive",))
    assert (waiting.status["phase"], waiting.status["reason"]) == ("Deleting", "InUse")
    assert "used by TrainingRun team-b/drive" in waiting.status["conditions"][0]["message"]
    assert [pod.name for pod in waiting.deletes] == [live.name]
    assert observe(("TrainingRun team-b/drive",), 99, waiting.status).status == waiting.status
    assert observe((), 99, waiting.status).status["reason"] == "RemovingData"


def a_store(folder: Path) -> FolderStore:
    store = FolderStore(folder)
    for digest in (MINE, OLDER, SHARED, OTHER):
        keys = CacheKeys("team-a", digest)
        for key in (keys.manifest, keys.metas(0, "0" * 64), keys.shard(0, "0" * 64), keys.routes):
            store.put(key, b"{}")
    for generation, digest in enumerate((OLDER, SHARED, MINE), 1):
        store.put(KEYS.result(generation), f'{{"digest": "{digest}", "phase": "Done"}}'.encode())
        store.put(KEYS.progress(generation, 0), f'{{"digest": "{digest}"}}'.encode())
        store.put(KEYS.control.published(generation), f'{{"digest": "{digest}"}}'.encode())
    return store


def keys_in(store: FolderStore) -> list[str]:
    return [info.key for info in store.list("")]


def test_everything_of_its_own_goes_and_nothing_that_others_use(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    doomed = read_digests(store, KEYS) - {SHARED}
    assert remove_portion(store, KEYS, doomed) is False  # once more, to see that nothing is left
    assert remove_portion(store, KEYS, doomed) is True
    assert {key.split("/")[2] for key in keys_in(store)} == {SHARED, OTHER}
    assert len(keys_in(store)) == 8


def test_a_kill_after_any_delete_leaves_no_false_cache_and_no_forgotten_data(
    tmp_path: Path,
) -> None:
    store = a_store(tmp_path)
    for _ in range(100):
        # Every call may be the last one of its process.
        over = remove_portion(store, KEYS, read_digests(store, KEYS), most=1)
        for digest in (OLDER, SHARED, MINE):
            cache = CacheKeys("team-a", digest)
            there = [key for key in keys_in(store) if key.startswith(cache.prefix)]
            assert len(there) in (0, 4) or cache.manifest not in there
        if over:
            break
    assert {key.split("/")[2] for key in keys_in(store)} == {OTHER}


def test_a_record_that_names_something_else_than_a_digest_leads_nowhere(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    store.put(KEYS.result(4), b'{"digest": "../datasets"}')
    store.put("datasets/towns/x", b"raw")
    while not remove_portion(store, KEYS, read_digests(store, KEYS)):
        pass
    assert store.head("datasets/towns/x") is not None


def test_a_pods_record_names_no_published_cache_of_another_resource_to_be_removed(tmp_path: Path) -> None:
    """Audit: B3."""
    store = a_store(tmp_path)
    store.put(KEYS.result(4), f'{{"digest": "{OTHER}"}}'.encode())
    assert read_digests(store, KEYS) == {OLDER, SHARED, MINE}
