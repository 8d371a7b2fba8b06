"""The operator's listing of a source comes to the hash that build pods gave the cache, until a file is another one."""

import asyncio
from pathlib import Path

import pytest

from lead_operator.bucket.source_watch import SourceWatch, compare, list_source, place_of
from lead_operator.decisions.observed import ObservedSource
from lead_operator.memory import Memories
from lead_operator.settings import StorageProfile
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import ObjectStore, StoreUnavailable
from lead_testing.makers import PROFILE
from lead_trainer.building import RawTree
from lead_trainer.data.digest import listing_sha256
from lead_trainer.data.source_tree import StoreTree

SHA = "5" * 64
FILES = ["b/r1/0001.jpg", "b/r1.json", "b/r1-x/0001.jpg", "a/Ü/0001.jpg", "a/z.json"]


def a_source(root: Path) -> FolderStore:
    store = FolderStore(root)
    for name in FILES:
        store.put(f"datasets/towns/{name}", name.encode())
    for folder in ("buckets", "cache", "results", "checkpoints"):
        store.put(f"datasets/towns/{folder}/a/made.json", b"made from the raw data, as LEAD keeps it beside them")
    store.put("datasets/towns2/other", b"not of this source")
    return store


def test_operator_and_build_pods_come_to_the_same_hash(tmp_path: Path) -> None:
    store = a_source(tmp_path)
    built_from = listing_sha256(RawTree(StoreTree(store, "datasets/towns")).files())
    listing = list_source(store, "datasets/towns/")
    assert listing and (listing.sha256, listing.files) == (built_from, len(FILES))


@pytest.mark.parametrize("change", ["add", "remove", "replace"])
def test_a_file_added_removed_or_replaced_changes_the_hash(tmp_path: Path, change: str) -> None:
    store = a_source(tmp_path)
    before = list_source(store, "datasets/towns")
    if change == "remove":
        store.delete("datasets/towns/a/z.json")
    else:
        store.put("datasets/towns/a/z.json" if change == "replace" else "datasets/towns/new", b"other bytes")
    assert list_source(store, "datasets/towns") != before


async def test_a_source_is_listed_rarely_and_never_in_the_way(tmp_path: Path) -> None:
    store, opened = a_source(tmp_path), 0

    def open_store(profile: StorageProfile) -> ObjectStore:
        nonlocal opened
        opened += 1
        if opened == 1:
            raise StoreUnavailable("no answer")
        return store

    memories = Memories()
    watch = SourceWatch(open_store, 3600, memories)
    assert watch.observe(PROFILE, "team-a", "uid", "datasets/towns", SHA) is None
    async with asyncio.timeout(60):
        while opened < 1 or asyncio.all_tasks() != {asyncio.current_task()}:
            await asyncio.sleep(0)
    assert (
        watch.observe(PROFILE, "team-a", "uid", "datasets/towns", SHA) is None
    )  # it failed, and its time has not come again
    memories.forget("uid")
    async with asyncio.timeout(60):
        while watch.observe(PROFILE, "team-a", "uid", "datasets/towns", SHA) is None:
            await asyncio.sleep(0.01)
    for _ in range(10):
        found = watch.observe(PROFILE, "team-a", "uid", "datasets/towns", SHA)
    assert (found and found.files, opened) == (len(FILES), 2)
    watch.close()


async def test_a_source_that_was_recorded_is_not_listed_a_second_time_for_it(tmp_path: Path) -> None:
    store, opened = a_source(tmp_path), 0

    def open_store(profile: StorageProfile) -> ObjectStore:
        nonlocal opened
        opened += 1
        return store

    watch = SourceWatch(open_store, every_s=3600)
    async with asyncio.timeout(60):
        while (found := watch.observe(PROFILE, "team-a", "uid", "datasets/towns", "")) is None:
            await asyncio.sleep(0.01)
    assert watch.observe(PROFILE, "team-a", "uid", "datasets/towns", found.sha256) == found and opened == 1
    assert watch.observe(PROFILE, "team-a", "uid", "datasets/towns", SHA) is None, "another source begins anew"
    watch.close()


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("data/Accident/route1/rgb/0001.jpg", "data/Accident/route1"),
        ("results/Accident/route1.json", "results"),
        ("trainval/log.db", "trainval/log.db"),
        ("log.db", "log.db"),
    ],
)
def test_a_file_counts_to_its_route(path: str, place: str) -> None:
    assert place_of(path) == place


async def test_the_routes_that_differ_from_what_a_cache_was_built_from_are_named(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    for route in ("r1", "r2", "r3"):
        store.put(f"datasets/towns/data/Accident/{route}/metas/0001.pkl", b"a meta")
        store.put(f"datasets/towns/data/Accident/{route}/results.json", b"{}")
    built_from = list_source(store, "datasets/towns")
    assert built_from is not None
    watch = SourceWatch(lambda profile: store, every_s=0)

    async def looked() -> ObservedSource:
        watch.observe(PROFILE, "team-a", "uid", "datasets/towns", built_from.sha256)
        async with asyncio.timeout(60):
            while asyncio.all_tasks() != {asyncio.current_task()}:
                await asyncio.sleep(0)
        found = watch.observe(PROFILE, "team-a", "uid", "datasets/towns", built_from.sha256)
        assert found is not None
        return found

    assert await looked() == ObservedSource(built_from.sha256, 6)
    store.delete("datasets/towns/data/Accident/r1/metas/0001.pkl")
    store.delete("datasets/towns/data/Accident/r1/results.json")
    store.put("datasets/towns/data/Accident/r2/metas/0001.pkl", b"another meta")
    store.put("datasets/towns/data/Accident/r3/results.json", b'{"status": "Failed"}')
    store.put("datasets/towns/data/Accident/r4/lidar/0001.laz", b"points")
    drifted = await looked()
    assert (drifted.added, drifted.removed, drifted.replaced) == (
        ("data/Accident/r4",), ("data/Accident/r1",), ("data/Accident/r2", "data/Accident/r3"),
    )  # fmt: skip
    watch.close()


def test_a_source_of_too_many_routes_is_compared_without_names(tmp_path: Path) -> None:
    store = a_source(tmp_path)
    before = list_source(store, "datasets/towns")
    store.delete("datasets/towns/a/z.json")
    now = list_source(store, "datasets/towns", most_places=1)
    assert before and now and now.places == {}
    assert compare(now, before.places) == ObservedSource(now.sha256, len(FILES) - 1)
