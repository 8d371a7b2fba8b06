"""Whole shards as files that stay open: how many a process may hold open, and what it does while its disk rests."""

import contextlib
import errno
import gc
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lead_protocol.manifests import StoredObject
from lead_protocol.store.object_store import StoreFull
from lead_testing.built_caches import build_and_publish
from lead_testing.bytes_recipe import MemoryTree
from lead_trainer.data import packed_backend
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.packed_backend import CHECK_EVERY_S, PackedBackend
from lead_trainer.data.session_cache import RETRY_S, DirectReads

Make = Callable[..., Any]
SHARDS = 40


@pytest.fixture
def shards(job: Make, store: Any, recipe: Any) -> list[StoredObject]:
    """Shards of one record each."""
    tree = MemoryTree({f"r1/{frame}": bytes([frame]) * 90 for frame in range(SHARDS)})
    digest = build_and_publish(job(), store, tree, recipe, lambda record: None, part_bytes=90).digest
    store.reads.clear()
    found = [entry.object for entry in CacheReader(store, digest).manifest.shards]
    assert len(found) == SHARDS
    return found


def data(cache: Any, shard: StoredObject) -> bytes:
    return bytes(cache.record(shard, 0).fields["data"])


def open_files(folder: Path) -> int:
    """What this process holds open below `folder`; not all it holds, for what other tests left may close meanwhile."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that listed them
            count += descriptor.readlink().is_relative_to(folder)
    return count


def test_a_shard_costs_one_open_file(store: Any, shards: list[StoredObject], tmp_path: Path) -> None:
    cache = PackedBackend(store, tmp_path / "ssd")
    before = open_files(tmp_path)
    for shard in shards:
        data(cache, shard)
    assert open_files(tmp_path) - before == SHARDS
    cache.close()
    assert open_files(tmp_path) == 0


@pytest.mark.parametrize("allowed", [4096, 0], ids=["asks for more", "gets no more"])
def test_more_shards_than_open_files_do_not_degrade_the_cache(
    store: Any, shards: list[StoredObject], tmp_path: Path, allowed: int
) -> None:
    """In a child, whose limit is low from its start, as a program's often is."""
    expected = [data(DirectReads(store), shard) for shard in shards]

    def read_all() -> None:
        few = SHARDS
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, allowed or few))
        cache = PackedBackend(store, tmp_path / "ssd")
        for _ in range(2):
            assert [data(cache, shard) for shard in shards] == expected
        (tmp_path / "checkpoint").write_bytes(b"can be opened too")
        stats = cache.stats()
        assert not stats.degraded and stats.fetched_bytes == sum(shard.size for shard in shards)

    in_a_child(read_all)


def in_a_child(work: Callable[[], None]) -> None:
    read_end, write_end = os.pipe()
    if (child := os.fork()) == 0:
        gc.freeze()  # what other tests left would close numbers that are a shard's by then
        os.dup2(write_end, 3)
        os.closerange(4, 4096)  # what the tests before it have opened
        write_end = 3
        try:
            work()
            os.write(write_end, b"done")
        except BaseException as error:
            os.write(write_end, repr(error).encode()[:4000])
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as told:
        assert told.read() == b"done"
    os.waitpid(child, 0)


def test_while_the_disk_rests_the_shards_on_it_are_read_from_it(
    store: Any, shards: list[StoredObject], tmp_path: Path
) -> None:
    expected = [data(DirectReads(store), shard) for shard in shards]
    earlier = PackedBackend(store, tmp_path / "ssd")
    for shard in shards[1:]:
        data(earlier, shard)
    cache, download = PackedBackend(store, tmp_path / "ssd", clock=lambda: 0.0), store.download

    def full(*_: Any, **__: Any) -> None:
        raise StoreFull("no space left on device")

    store.download = full
    assert data(cache, shards[0]) == expected[0] and cache.stats().degraded
    store.download = download
    store.reads.clear()
    assert [data(cache, shard) for shard in shards[1:]] == expected[1:]
    assert store.reads == [] and cache.stats().degraded, "it rests until its minute is over"
    assert data(cache, shards[0]) == expected[0] and not (tmp_path / "ssd/shards" / shards[0].sha256).exists()


def test_a_damaged_shard_that_cannot_be_removed_is_read_from_the_store(
    store: Any, shards: list[StoredObject], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, shard = 0.0, shards[0]
    expected = data(DirectReads(store), shard)
    data(PackedBackend(store, tmp_path / "ssd"), shard)
    damage(tmp_path / "ssd/shards" / shard.sha256)

    def read_only(path: Path, missing_ok: bool = False) -> None:
        raise OSError(30, "read-only file system", str(path))

    cache = PackedBackend(store, tmp_path / "ssd", clock=lambda: now)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", read_only)
        for moment in (0.0, 1.0, RETRY_S):
            now = moment
            assert data(cache, shard) == expected and cache.stats().degraded
    now = 2 * RETRY_S
    assert data(cache, shard) == expected and not cache.stats().degraded


def damage(path: Path) -> None:
    spoiled = bytearray(path.read_bytes())
    spoiled[spoiled.find(b"LDR1") + 6] ^= 0xFF
    path.write_bytes(bytes(spoiled))


def test_a_shard_that_is_cut_short_while_it_is_read_is_fetched_again(
    store: Any, shards: list[StoredObject], tmp_path: Path
) -> None:
    """A mapping of it would end the process with SIGBUS."""
    shard, cache = shards[0], PackedBackend(store, tmp_path / "ssd")
    expected = data(cache, shard)
    for size in (shard.size - 1, 100, 0):
        os.truncate(tmp_path / "ssd/shards" / shard.sha256, size)
        assert data(cache, shard) == expected
        os.truncate(tmp_path / "ssd/shards" / shard.sha256, size)
    assert not cache.stats().degraded and cache.stats().corrupt > 0


def test_a_disk_that_fails_while_a_shard_is_read_costs_the_cache_not_the_run(
    store: Any, shards: list[StoredObject], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, shard = 0.0, shards[0]
    cache = PackedBackend(store, tmp_path / "ssd", clock=lambda: now)
    expected = data(cache, shard)

    def dying(*_: Any) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", dying)
        for moment in (0.0, 1.0, RETRY_S):
            now = moment
            assert data(cache, shard) == expected and cache.stats().degraded
    now = 2 * RETRY_S
    assert data(cache, shard) == expected and not cache.stats().degraded


def test_records_of_a_shard_that_was_fetched_are_no_hits_before_they_come_again(
    store: Any, shards: list[StoredObject], tmp_path: Path
) -> None:
    cold, cache = shards[:10], PackedBackend(store, tmp_path / "ssd")
    for shard in shards[:20]:
        cache.fetch(shard)  # ahead, and more than is read
    for shard in cold:
        data(cache, shard)
    assert (cache.stats().hits, cache.stats().misses) == (0, 10)
    for shard in cold:
        data(cache, shard)
    assert (cache.stats().hits, cache.stats().misses) == (10, 10), "though more was brought than is read"
    warm = PackedBackend(store, tmp_path / "ssd")
    for shard in cold:
        data(warm, shard)
    assert (warm.stats().hits, warm.stats().misses) == (10, 0)


def test_a_damaged_shard_that_one_process_fetches_again_degrades_no_other(
    store: Any, shards: list[StoredObject], tmp_path: Path
) -> None:
    now, shard = 0.0, shards[0]
    path, looks, download = tmp_path / "ssd/shards" / shard.sha256, [], store.download
    expected = data(DirectReads(store), shard)
    other = PackedBackend(store, tmp_path / "ssd", clock=lambda: now)
    data(other, shard)
    damage(path)

    def look(*args: Any, **expected: Any) -> None:
        nonlocal now
        now += CHECK_EVERY_S
        looks.append((path.exists(), other.stats().degraded))
        download(*args, **expected)

    store.download = look
    assert data(PackedBackend(store, tmp_path / "ssd"), shard) == expected
    assert looks == [(False, False)]
    now += CHECK_EVERY_S
    assert not other.stats().degraded
    assert data(other, shard) == expected and other.stats().corrupt == 0


def test_a_volume_without_a_limit_counts_what_is_coming(
    store: Any, shards: list[StoredObject], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = shards[:2]
    monkeypatch.setattr(packed_backend, "room_bytes", lambda *_: first.size + second.size - 1)  # none of it written yet
    one, other = (PackedBackend(store, tmp_path / "ssd") for _ in range(2))
    download, asked = store.download, []

    def slow(key: str, path: Path, **expected: Any) -> None:
        asked.append(key)
        if key == first.key:
            data(other, second)
        download(key, path, **expected)

    store.download = slow
    data(one, first)
    assert asked == [first.key], "the second is streamed: the first takes the room"
