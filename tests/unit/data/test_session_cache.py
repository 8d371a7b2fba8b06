"""Both backends keep one promise: checked records, one fetch where possible, and never a stop because of the disk."""

import fcntl
import os
import shutil
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import diskcache
import pytest

from lead_protocol.manifests import StoredObject
from lead_protocol.store.object_store import StoreFull
from lead_testing.built_caches import build_and_publish
from lead_testing.bytes_recipe import MemoryTree
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.packed_backend import PackedBackend
from lead_trainer.data.session_cache import RETRY_S, DirectReads, SessionCache, open_session_cache
from lead_trainer.errors import BadConfig, BadData

BACKENDS = ["packed", "diskcache"]
Make = Callable[..., Any]


@pytest.fixture
def shards(job: Make, store: Any, tree: Any, recipe: Any) -> list[tuple[StoredObject, int]]:
    """Shards of a built cache, with their record counts."""
    digest = build_and_publish(job(), store, tree, recipe, lambda record: None, part_bytes=150).digest
    store.reads.clear()
    return [(entry.object, entry.records) for entry in CacheReader(store, digest).manifest.shards]


def read_all(cache: SessionCache, shards: list[tuple[StoredObject, int]]) -> list[bytes]:
    return [bytes(cache.record(shard, slot).fields["data"]) for shard, count in shards for slot in range(count)]


def lds_reads(store: Any) -> int:
    return sum(key.endswith(".lds") for key in store.reads)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_second_pass_and_a_restart_read_nothing_from_the_store(
    backend: str, store: Any, shards: Any, tmp_path: Path
) -> None:
    cache = open_session_cache(backend, store, tmp_path / "ssd", 0)
    first = read_all(cache, shards)
    fetched = lds_reads(store)
    assert read_all(cache, shards) == first
    cache.close()
    warm = open_session_cache(backend, store, tmp_path / "ssd", 0)
    assert read_all(warm, shards) == first
    assert lds_reads(store) == fetched
    stats = warm.stats()
    assert (stats.misses, stats.fetched_bytes, stats.hits) == (0, 0, len(first))
    assert not stats.degraded


def damage(folder: Path) -> int:
    """Flips a byte in every cached file that holds record bytes; returns how many."""
    count = 0
    for path in folder.rglob("*"):
        if (path.is_file() and path.parent.name in ("shards", "diskcache")) or path.suffix == ".val":
            data = bytearray(path.read_bytes())
            place = data.find(b"LDR1")
            while place >= 0:
                data[place + 6] ^= 0xFF
                count += 1
                place = data.find(b"LDR1", place + 1)
            path.write_bytes(bytes(data))
    return count


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_damaged_copy_is_fetched_again(backend: str, store: Any, shards: Any, tmp_path: Path) -> None:
    cache = open_session_cache(backend, store, tmp_path / "ssd", 0)
    first = read_all(cache, shards)
    cache.close()
    assert damage(tmp_path / "ssd") > 0
    again = open_session_cache(backend, store, tmp_path / "ssd", 0)
    assert read_all(again, shards) == first
    assert again.stats().corrupt > 0
    again.close()
    assert read_all(open_session_cache(backend, store, tmp_path / "ssd", 0), shards) == first


@pytest.mark.parametrize("backend", [*BACKENDS, "none"])
def test_a_shard_that_stays_damaged_is_named_after_three_tries(
    backend: str, store: Any, shards: Any, tmp_path: Path
) -> None:
    shard = shards[0][0]
    data = bytearray(store.get(shard.key, max_bytes=shard.size))
    data[len(data) // 3] ^= 1
    store.put(shard.key, bytes(data))
    folder = None if backend == "none" else tmp_path / "ssd"
    cache = open_session_cache(backend, store, folder, 0)
    with pytest.raises(BadData, match=shard.sha256):
        read_all(cache, shards[:1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_disk_that_cannot_be_used_means_reads_from_the_store(
    backend: str, store: Any, shards: Any, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    expected = read_all(open_session_cache(backend, store, None, 0), shards)
    cache = open_session_cache(backend, store, tmp_path / "file", 0)
    assert read_all(cache, shards) == expected
    assert cache.stats().degraded


def test_a_disk_that_fills_up_on_the_way_means_reads_from_the_store(store: Any, shards: Any, tmp_path: Path) -> None:
    expected = read_all(open_session_cache("packed", store, None, 0), shards)

    def full(*_: Any, **__: Any) -> None:
        raise StoreFull("no space left on device")

    cache = PackedBackend(store, tmp_path / "ssd")
    cache.record(shards[0][0], 0)
    store.download = full
    assert read_all(cache, shards) == expected
    assert cache.stats().degraded


def test_a_disk_that_has_room_again_is_used_again(store: Any, shards: Any, tmp_path: Path) -> None:
    expected = read_all(open_session_cache("packed", store, None, 0), shards)
    now, download = 0.0, store.download

    def full(*_: Any, **__: Any) -> None:
        raise StoreFull("no space left on device")

    cache = PackedBackend(store, tmp_path / "ssd", clock=lambda: now)
    store.download = full
    assert read_all(cache, shards) == expected and cache.stats().degraded
    store.download = download
    now = RETRY_S - 1
    assert read_all(cache, shards) == expected and cache.stats().degraded
    now = RETRY_S
    assert read_all(cache, shards) == expected and not cache.stats().degraded
    assert len(list((tmp_path / "ssd/shards").iterdir())) == len(shards)


def test_many_readers_fetch_each_shard_once(store: Any, shards: Any, tmp_path: Path) -> None:
    caches = [PackedBackend(store, tmp_path / "ssd") for _ in range(4)]
    expected = read_all(open_session_cache("packed", store, None, 0), shards)
    store.reads.clear()
    results: list[list[bytes]] = []
    threads = [threading.Thread(target=lambda c=cache: results.append(read_all(c, shards))) for cache in caches * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == [expected] * 8
    assert sorted(k for k in store.reads if k.endswith(".lds")) == sorted(shard.key for shard, _ in shards)


def test_a_half_written_download_is_never_read(store: Any, shards: Any, tmp_path: Path) -> None:
    shard = shards[0][0]
    folder = tmp_path / "ssd" / "shards"
    folder.mkdir(parents=True)
    (folder / shard.sha256).write_bytes(store.get(shard.key, max_bytes=shard.size)[:-9])
    cache = PackedBackend(store, tmp_path / "ssd")
    assert cache.record(shard, 0).fields["data"]
    assert cache.stats().corrupt == 1


def test_the_limit_is_kept_by_removing_shards_nobody_reads(store: Any, shards: Any, tmp_path: Path) -> None:
    limit = 2 * max(shard.size for shard, _ in shards)
    for shard, _ in shards:
        cache = PackedBackend(store, tmp_path / "ssd", limit)
        cache.record(shard, 0)
        cache.close()
        kept = list((tmp_path / "ssd" / "shards").iterdir())
        assert sum(path.stat().st_size for path in kept) <= limit
    assert not cache.stats().degraded


def test_a_limit_that_is_lowered_holds_from_the_next_run_on(store: Any, shards: Any, tmp_path: Path) -> None:
    expected = read_all(open_session_cache("packed", store, None, 0), shards)
    wide = PackedBackend(store, tmp_path / "ssd")
    read_all(wide, shards)
    wide.close()
    limit = 2 * max(shard.size for shard, _ in shards)
    gone = shards[0][0]
    (tmp_path / "ssd/shards" / gone.sha256).unlink()  # so that one must be fetched
    narrow = PackedBackend(store, tmp_path / "ssd", limit)
    assert narrow.record(gone, 0).fields["data"] and held_bytes(tmp_path) <= limit
    assert read_all(narrow, shards) == expected and held_bytes(tmp_path) <= limit


def test_two_caches_share_one_limit(job: Make, store: Any, shards: Any, recipe: Any, tmp_path: Path) -> None:
    tree = MemoryTree({f"r1/{frame}": bytes([frame]) * 90 for frame in range(12)})
    digest = build_and_publish(job(), store, tree, recipe, lambda record: None, part_bytes=150).digest
    others = [(entry.object, entry.records) for entry in CacheReader(store, digest).manifest.shards]
    limit = 4 * max(shard.size for shard, _ in shards + others)
    expected = [read_all(open_session_cache("packed", store, None, 0), each) for each in (shards, others)]
    at_once = 2
    for _ in range(2):
        caches = [PackedBackend(store, tmp_path / "ssd", limit) for _ in range(at_once)]
        with ThreadPoolExecutor(at_once) as pool:
            assert list(pool.map(read_all, caches, (shards, others))) == expected
        assert held_bytes(tmp_path) <= limit
        for cache in caches:
            cache.close()
        assert not any(cache.stats().degraded for cache in caches)


def test_what_is_being_fetched_counts_whole_from_its_start(store: Any, shards: Any, tmp_path: Path) -> None:
    (first, _), (second, _) = shards[:2]
    expected = [bytes(DirectReads(store).record(shard, 0).fields["data"]) for shard in (first, second)]
    begun, go_on, download = threading.Event(), threading.Event(), store.download

    def slow(key: str, path: Path, **expected: Any) -> None:
        if key == first.key:
            begun.set()
            assert go_on.wait(30)
        download(key, path, **expected)

    store.download = slow
    limit = first.size + second.size - 1
    one, other = (PackedBackend(store, tmp_path / "ssd", limit) for _ in range(2))
    with ThreadPoolExecutor(1) as pool:
        fetch = pool.submit(lambda: bytes(one.record(first, 0).fields["data"]))
        assert begun.wait(30)
        assert bytes(other.record(second, 0).fields["data"]) == expected[1]
        assert held_bytes(tmp_path) == 0, "there is room for the first alone, though none of it is written yet"
        go_on.set()
        assert fetch.result(30) == expected[0]
    assert held_bytes(tmp_path) == first.size and not other.stats().degraded
    one.close()
    later = PackedBackend(store, tmp_path / "ssd", limit)
    assert later.record(second, 0).fields["data"] and held_bytes(tmp_path) == second.size


def test_a_shard_that_has_just_come_is_not_removed_before_it_is_opened(store: Any, shards: Any, tmp_path: Path) -> None:
    (first, _), (second, _) = shards[:2]
    came, go_on, download = threading.Event(), threading.Event(), store.download

    def slow(key: str, path: Path, **expected: Any) -> None:
        download(key, path, **expected)
        if key == first.key:
            came.set()
            assert go_on.wait(30)

    store.download = slow
    one, other = (PackedBackend(store, tmp_path / "ssd", first.size + second.size - 1) for _ in range(2))
    with ThreadPoolExecutor(1) as pool:
        fetch = pool.submit(one.fetch, first)
        assert came.wait(30)
        assert not other.fetch(second)
        go_on.set()
        assert fetch.result(30)
    assert held_bytes(tmp_path) == first.size and one.stats().fetched_bytes == first.size


def test_the_room_of_a_killed_fetch_is_free_again(store: Any, shards: Any, tmp_path: Path) -> None:
    (first, _), (second, _) = shards[:2]
    limit = first.size + second.size - 1
    child = os.fork()
    if child == 0:
        store.download = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
        try:
            PackedBackend(store, tmp_path / "ssd", limit).record(first, 0)
        finally:
            os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    left = tmp_path / "ssd/shards" / f"{first.sha256}.0123.part"
    left.write_bytes(bytes(first.size))
    for shard in (second, first):
        cache = PackedBackend(store, tmp_path / "ssd", limit)
        cache.record(shard, 0)
        assert [path.name for path in (tmp_path / "ssd/shards").iterdir()] == [shard.sha256]
        cache.close()


def held_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "ssd/shards").iterdir())


def test_what_a_killed_fetch_left_is_removed_to_make_room(store: Any, shards: Any, tmp_path: Path) -> None:
    limit = 2 * max(shard.size for shard, _ in shards)
    orphan = tmp_path / "ssd/shards/of-a-dead-process.part"
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(bytes(limit))
    cache = PackedBackend(store, tmp_path / "ssd", limit)
    assert cache.record(shards[0][0], 0).fields["data"] and cache.stats().fetched_bytes == shards[0][0].size
    assert not orphan.exists() and held_bytes(tmp_path) <= limit


def test_a_part_that_its_writer_is_about_to_lock_stays(store: Any, shards: Any, tmp_path: Path) -> None:
    limit = 2 * max(shard.size for shard, _ in shards)
    begun = tmp_path / "ssd/shards/just-begun.part"
    begun.parent.mkdir(parents=True)
    begun.touch()
    for shard, _ in shards:
        cache = PackedBackend(store, tmp_path / "ssd", limit)
        cache.record(shard, 0)
        cache.close()
    assert begun.exists() and held_bytes(tmp_path) <= limit


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_folder_that_is_removed_under_a_running_job_costs_no_sample(
    backend: str, store: Any, shards: Any, tmp_path: Path
) -> None:
    expected = read_all(open_session_cache(backend, store, None, 0), shards)
    cache = open_session_cache(backend, store, tmp_path / "ssd", 0)
    assert cache.record(shards[0][0], 0).fields["data"]
    shutil.rmtree(tmp_path / "ssd")
    assert read_all(cache, shards) == expected
    cache.close()
    assert read_all(open_session_cache(backend, store, tmp_path / "ssd", 0), shards) == expected


DAMAGES: dict[str, Callable[[bytes, bytes], Any]] = {
    "cut": lambda record, other: record[:-9],
    "zeroed": lambda record, other: record[:40] + bytes(64) + record[104:],
    "of another sample": lambda record, other: other,
    "of another version": lambda record, other: record[:4] + b"\2" + record[5:],
    "empty": lambda record, other: b"",
    "no bytes": lambda record, other: "text",
}


@pytest.mark.parametrize("damage_one", DAMAGES.values(), ids=DAMAGES.keys())
def test_any_damage_to_a_single_record_is_found(store: Any, shards: Any, tmp_path: Path, damage_one: Any) -> None:
    expected = read_all(open_session_cache("diskcache", store, None, 0), shards)
    read_all(open_session_cache("diskcache", store, tmp_path / "ssd", 0), shards)
    with diskcache.Cache(str(tmp_path / "ssd/diskcache")) as entries:
        first, second = list(entries)[:2]
        entries[first] = damage_one(entries[first], entries[second])
    again = open_session_cache("diskcache", store, tmp_path / "ssd", 0)
    found = [
        bytes(again.record(shard, slot, sample_of(store, shard, slot)).fields["data"])
        for shard, count in shards
        for slot in range(count)
    ]
    assert found == expected and again.stats().misses == 1
    warm = open_session_cache("diskcache", store, tmp_path / "ssd", 0)
    assert read_all(warm, shards) == expected and warm.stats().misses == 0


def sample_of(store: Any, shard: StoredObject, slot: int) -> int:
    return DirectReads(store).record(shard, slot).sample_id


@pytest.mark.parametrize("backend", BACKENDS)
def test_of_64_at_once_nobody_loses_or_sees_part_of_a_record(
    backend: str, store: Any, shards: Any, tmp_path: Path
) -> None:
    expected = read_all(open_session_cache(backend, store, None, 0), shards)
    store.reads.clear()
    caches = [open_session_cache(backend, store, tmp_path / "ssd", 0) for _ in range(8)]
    with ThreadPoolExecutor(64) as pool:
        results = list(pool.map(lambda number: read_all(caches[number % 8], shards), range(64)))
    assert results == [expected] * 64
    assert not any(cache.stats().degraded or cache.stats().corrupt for cache in caches)
    if backend == "packed":
        assert lds_reads(store) == len(shards)
    warm = open_session_cache(backend, store, tmp_path / "ssd", 0)
    assert read_all(warm, shards) == expected and warm.stats().misses == 0, "no write was lost"


def test_shards_in_use_are_not_removed_and_the_rest_is_streamed(store: Any, shards: Any, tmp_path: Path) -> None:
    expected = read_all(open_session_cache("packed", store, None, 0), shards)
    cache = PackedBackend(store, tmp_path / "ssd", shards[0][0].size)
    assert read_all(cache, shards) == expected
    assert [path.name for path in (tmp_path / "ssd" / "shards").iterdir()] == [shards[0][0].sha256]
    assert not cache.stats().degraded


def test_a_lock_left_by_a_dead_process_does_not_block(store: Any, shards: Any, tmp_path: Path) -> None:
    shard = shards[0][0]
    cache = PackedBackend(store, tmp_path / "ssd")
    lock = tmp_path / "ssd" / "locks" / shard.sha256
    child = os.fork()
    if child == 0:
        code = 1
        try:
            fcntl.flock(os.open(lock, os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)
            code = 0
        finally:
            os._exit(code)  # dies with the lock held
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert cache.record(shard, 0).fields["data"]


def test_an_unknown_backend_is_a_config_error(store: Any, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="found backend 'redis'"):
        open_session_cache("redis", store, tmp_path, 0)


def test_the_counters_can_be_read_while_shards_are_being_opened(
    shards: list[tuple[StoredObject, int]], store: Any, tmp_path: Path
) -> None:
    now = iter(range(10**9))
    errors: list[BaseException] = []
    for _ in range(100):
        cache = PackedBackend(store, tmp_path / "ssd", clock=lambda: 10.0 * next(now))  # looks at each call
        done = threading.Event()

        def look(cache: PackedBackend = cache, done: threading.Event = done) -> None:
            try:
                while not done.is_set():
                    cache.stats()
            except BaseException as error:
                errors.append(error)

        looking = threading.Thread(target=look)
        looking.start()
        for shard, _count in shards:
            cache.fetch(shard)
        done.set()
        looking.join()
        cache.close()
    assert not errors
