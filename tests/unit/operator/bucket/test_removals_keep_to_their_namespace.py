"""What fails or takes long where alice removes data neither stops nor is shown to bob; what nobody can read goes."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lead_operator.bucket.cache_data_gc import CacheDataGC, read_digests, remove_portion
from lead_operator.bucket.source_watch import SourceWatch
from lead_operator.bucket.store_errors import explain_store_error
from lead_operator.bucket.store_threads import StoreThreads
from lead_protocol.object_keys import BuildKeys, CacheKeys
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import ObjectInfo, StoreDenied, StoreError, StoreUnavailable
from lead_testing.makers import PROFILE

MINE, HALF = "a1" * 32, "b2" * 32
ALICE, BOB = BuildKeys("alice", "0a11ce"), BuildKeys("bob", "0b0b")


class TroubledStore(FolderStore):
    """A store with trouble below the folders of alice alone."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.unreadable: dict[str, StoreError] = {}
        self.extra: list[str] = []  # keys that only a LIST names
        self.fails = self.hangs = False
        self.let_go = threading.Event()
        self.asked: list[str] = []
        for keys in (ALICE, BOB):
            self.put(keys.result(1), f'{{"digest": "{MINE}"}}'.encode())
            self.put(keys.control.published(1), f'{{"digest": "{MINE}"}}'.encode())
            self.put(CacheKeys(keys.namespace, MINE).manifest, b"{}")

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        if "/alice/" in prefix:
            self.asked.append(prefix)
            if self.fails:
                raise StoreUnavailable(f"LIST s3://lead/{prefix}x.json: no answer")
            if self.hangs:
                self.let_go.wait(60)
        yield from super().list(prefix, start_after=start_after)
        yield from (ObjectInfo(key, 1, "e") for key in self.extra if key.startswith(prefix))

    def get(self, key: str, *, max_bytes: int, etag: str = "") -> bytes:
        if key in self.unreadable:
            raise self.unreadable[key]
        return super().get(key, max_bytes=max_bytes, etag=etag)

    def left_of(self, namespace: str) -> tuple[str, ...]:
        """Returns the keys of everything of a namespace."""
        return tuple(info.key for info in FolderStore.list(self, "") if f"/{namespace}/" in info.key)


@pytest.fixture
def store(tmp_path: Path) -> TroubledStore:
    return TroubledStore(tmp_path)


async def remove_all(removal: CacheDataGC, keys: BuildKeys) -> None:
    doomed = await removal.digests(PROFILE, keys)
    while not await removal.remove(PROFILE, keys, doomed):
        pass


async def test_an_error_of_alice_rests_her_removals_and_is_not_raised_to_bob(store: TroubledStore) -> None:
    """Audit: flood"""
    removal = CacheDataGC(lambda profile: store, lambda profile: None)
    store.fails = True
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await removal.digests(PROFILE, ALICE)
        await remove_all(removal, BOB)
    assert len(store.asked) == 1
    assert store.left_of("bob") == ()
    removal.close()


async def test_removals_of_alice_that_take_long_hold_up_none_of_bob(store: TroubledStore) -> None:
    """Audit: flood"""
    removal = CacheDataGC(lambda profile: store, lambda profile: None)
    store.hangs = True
    stuck = [asyncio.create_task(removal.digests(PROFILE, ALICE)) for _ in range(20)]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(30):
            await remove_all(removal, BOB)
        assert not any(task.done() for task in stuck)
    finally:
        store.let_go.set()
        await asyncio.gather(*stuck)
        removal.close()


@pytest.mark.parametrize(
    "error",
    [StoreError("GET: the store answered 400 InvalidRequest"), StoreDenied("403 InvalidObjectState", of_key=False)],
    ids=["encrypted with another's key", "archived"],
)
def test_a_record_of_a_pod_that_cannot_be_read_goes_with_the_rest(store: TroubledStore, error: StoreError) -> None:
    """Audit: flood"""
    store.put(ALICE.progress(2, 0), f'{{"digest": "{HALF}"}}'.encode())
    store.put(CacheKeys("alice", HALF).shard(0, "0" * 64), b"x")
    store.put(CacheKeys("alice", "c3" * 32).manifest, b"{}")  # of another DatasetCache
    store.unreadable[ALICE.result(1)] = error
    doomed = read_digests(store, ALICE)
    assert doomed == {MINE, HALF}
    while not remove_portion(store, ALICE, doomed):
        pass
    assert store.left_of("alice") == (CacheKeys("alice", "c3" * 32).manifest,)


@pytest.mark.parametrize("error", [StoreUnavailable("no answer"), StoreDenied("the key is refused", of_key=True)])
def test_a_store_that_is_away_or_refuses_the_key_is_no_unreadable_record(
    store: TroubledStore, error: StoreError
) -> None:
    store.unreadable[ALICE.result(1)] = error
    with pytest.raises(type(error)):
        read_digests(store, ALICE)


def test_a_record_of_the_operator_that_cannot_be_read_is_waited_for(store: TroubledStore) -> None:
    store.unreadable[ALICE.control.published(1)] = StoreError("GET: 400")
    with pytest.raises(StoreError):
        read_digests(store, ALICE)


def test_a_key_that_no_request_may_name_holds_up_no_removal(store: TroubledStore) -> None:
    store.extra = [f"{ALICE.prefix}folder/", f"{ALICE.prefix}a\u200bname"]
    doomed = read_digests(store, ALICE)
    for _ in range(3):
        over = remove_portion(store, ALICE, doomed)
    assert over and store.left_of("alice") == ()


def test_what_a_status_says_of_an_error_names_no_key() -> None:
    error = StoreError(f"GET s3://lead/{ALICE.result(1)}: the store answered 400 InvalidRequest; check the endpoint")
    told = explain_store_error(error)
    assert told == "StoreError: GET s3://lead/… the store answered 400 InvalidRequest; check the endpoint"


async def test_a_source_of_alice_that_takes_long_to_list_holds_up_none_of_bob(store: TroubledStore) -> None:
    """Audit: flood"""
    watch = SourceWatch(lambda profile: store, every_s=3600)
    store.hangs = True
    for number in range(20):
        watch.observe(PROFILE, "alice", f"a{number}", "datasets/alice/towns", "5" * 64)
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(30):
            while watch.observe(PROFILE, "bob", "b", "datasets/bob", "5" * 64) is None:
                await asyncio.sleep(0.01)
        assert watch.observe(PROFILE, "alice", "a0", "datasets/alice/towns", "5" * 64) is None
    finally:
        store.let_go.set()
        watch.close()


async def test_work_that_nobody_waits_for_any_more_keeps_its_turn_until_its_thread_is_free() -> None:
    threads, let_go, running = StoreThreads(1, "test"), threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        running.release()
        let_go.wait(60)

    given_up = [asyncio.create_task(threads.run("default", "alice", hang)) for _ in range(5)]
    await reached(lambda: running.acquire(blocking=False))
    for task in given_up:
        task.cancel()
    await asyncio.wait(given_up)
    again = asyncio.create_task(threads.run("default", "alice", hang))
    async with asyncio.timeout(30):
        assert await threads.run("default", "bob", lambda: "answer") == "answer"
    assert not running.acquire(blocking=False)  # her next one waits for her first one
    let_go.set()
    async with asyncio.timeout(30):
        await again
    threads.close()


async def reached(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        await asyncio.sleep(0.01)
