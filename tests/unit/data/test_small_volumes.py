"""On a real volume that is nearly full: what is removed, what never is, and that no batch changes; needs root."""

import errno
import os
import random
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lead_protocol.manifests import StoredObject
from lead_protocol.store.folder import FolderStore
from lead_testing.built_caches import build_and_publish
from lead_testing.bytes_recipe import MemoryTree
from lead_testing.data_faults import build_test_cache, deliver
from lead_trainer.data import diskcache_backend, packed_backend
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.packed_backend import PackedBackend
from lead_trainer.data.session_cache import RETRY_S, DirectReads, SessionCache
from lead_trainer.data.water_marks import HIGH, LOW, room_bytes
from lead_trainer.engine.samples.dataset import Dataset

KIB = 1024
RECORDS, RECORD_BYTES = 50, 6000  # a shard of one record takes two pages
BACKENDS = {"packed": PackedBackend, "diskcache": diskcache_backend.DiskcacheBackend}
VOLUME_BYTES = {"packed": 400 * KIB, "diskcache": 16 * KIB * KIB}  # SQLite's log takes some megabytes
Volume = Callable[..., Path]


@pytest.fixture
def shards(job: Any, store: Any, recipe: Any) -> list[StoredObject]:
    """Shards of one record each."""
    noise = random.Random(3)
    tree = MemoryTree({f"r{n % 5}/{n // 5}": noise.randbytes(RECORD_BYTES) for n in range(RECORDS)})
    digest = build_and_publish(job(), store, tree, recipe, lambda record: None, part_bytes=RECORD_BYTES).digest
    found = [entry.object for entry in CacheReader(store, digest).manifest.shards]
    assert len(found) == RECORDS
    return found


def data(cache: SessionCache, shard: StoredObject) -> bytes:
    return bytes(cache.record(shard, 0).fields["data"])


def fill(folder: Path, *, leave: int = 0) -> Path:
    """Lets somebody else take the room of a volume."""
    path = folder / "of-somebody-else"
    with path.open("ab", buffering=0) as file:
        try:
            while (free := _free(folder) - leave) > 0:
                file.write(bytes(min(free, 64 * KIB)))
        except OSError as error:
            assert error.strerror == "No space left on device"
    return path


def _free(folder: Path) -> int:
    volume = os.statvfs(folder)
    return volume.f_bavail * volume.f_frsize


def held(folder: Path) -> set[str]:
    return {path.name for path in (folder / "shards").iterdir()}


def test_removal_begins_above_the_high_mark_and_ends_at_the_low_one_oldest_first(
    volume: Volume, store: Any, shards: list[StoredObject]
) -> None:
    folder = volume(200 * KIB)
    removals: list[int] = []
    for number, shard in enumerate(shards):
        cache = PackedBackend(store, folder)
        before = held(folder)
        fits = shard.size <= room_bytes(folder, HIGH)
        assert data(cache, shard) == data(DirectReads(store), shard)
        gone = before - held(folder)
        assert bool(gone) == (not fits)
        newest = {shard.sha256 for shard in shards[number + 1 - len(held(folder)) : number + 1]}
        assert held(folder) == newest
        if gone:
            assert room_bytes(folder, LOW) >= -4 * KIB, "the shard itself takes whole pages"
            removals.append(len(gone))
        assert not cache.stats().degraded
        cache.close()
    assert len(removals) >= 2 and min(removals) >= 2, "room for several is made at once"


def test_shards_that_are_read_are_never_removed(volume: Volume, store: Any, shards: list[StoredObject]) -> None:
    folder, expected = volume(200 * KIB), [data(DirectReads(store), shard) for shard in shards]
    first = PackedBackend(store, folder)
    kept = [first.record(shard, 0) for shard in shards[:8]]
    closed = PackedBackend(store, folder)
    data(closed, shards[8])
    closed.close()
    second = PackedBackend(store, folder)
    assert [data(second, shard) for shard in shards[9:]] == expected[9:]
    assert {shard.sha256 for shard in shards[:8]} <= held(folder)
    assert shards[8].sha256 not in held(folder), "nobody held it any more"
    assert [bytes(record.fields["data"]) for record in kept] == expected[:8]
    assert not second.stats().degraded
    hits = second.stats().hits
    assert [data(second, shard) for shard in shards[:8]] == expected[:8]
    assert second.stats().hits == hits + 8, "they are shared"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_volume_that_others_fill_is_left_alone_and_told_and_used_again_later(
    volume: Volume, store: Any, shards: list[StoredObject], backend: str
) -> None:
    folder, now, expected = (
        volume(VOLUME_BYTES[backend]),
        0.0,
        [data(DirectReads(store), shard) for shard in shards[:6]],
    )
    cache: Any = BACKENDS[backend](store, folder, clock=lambda: now)
    filler = fill(folder, leave=8 * KIB)
    assert [data(cache, shard) for shard in shards[:6]] == expected
    assert cache.stats().degraded and cache.stats().hits == 0
    assert Dataset(samples=None, session=cache).counters()["cache_degraded"] is True  # type: ignore[arg-type]
    filler.unlink()
    now = RETRY_S
    assert [data(cache, shard) for shard in shards[:6]] == expected
    assert not cache.stats().degraded
    assert [data(cache, shard) for shard in shards[:6]] == expected and cache.stats().hits >= 6


def test_a_full_volume_is_made_room_on(volume: Volume, store: Any, shards: list[StoredObject]) -> None:
    folder = volume(200 * KIB)
    earlier = PackedBackend(store, folder)
    for shard in shards[:12]:
        data(earlier, shard)
    earlier.close()
    fill(folder)
    assert _free(folder) == 0
    later = PackedBackend(store, folder)
    assert data(later, shards[20]) == data(DirectReads(store), shards[20])
    assert shards[20].sha256 in held(folder) and shards[0].sha256 not in held(folder)
    assert not later.stats().degraded


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("trouble", ["read-only", "no inodes"])
def test_a_volume_that_cannot_be_written_means_streaming_until_it_can(
    volume: Volume, store: Any, shards: list[StoredObject], backend: str, trouble: str
) -> None:
    folder, now = volume(VOLUME_BYTES[backend], "nr_inodes=40"), 0.0
    expected = [data(DirectReads(store), shard) for shard in shards[:6]]
    first: Any = BACKENDS[backend](store, folder)
    assert data(first, shards[0]) == expected[0]
    if trouble == "read-only":
        first.close()
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    else:
        first.close()
        taken = use_inodes(folder)
    cache: Any = BACKENDS[backend](store, folder, clock=lambda: now)
    assert [data(cache, shard) for shard in shards[:6]] == expected
    assert cache.stats().degraded or (backend, trouble) == ("diskcache", "no inodes"), "SQLite needs no new file"
    if trouble == "read-only":
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
    else:
        for path in taken:
            path.unlink()
    now = RETRY_S
    for _ in range(2):
        assert [data(cache, shard) for shard in shards[:6]] == expected
    assert not cache.stats().degraded and cache.stats().hits >= 6


def use_inodes(folder: Path) -> list[Path]:
    """Makes empty files until there can be no more."""
    taken: list[Path] = []
    try:
        while True:
            taken.append(folder / f"empty{len(taken)}")
            taken[-1].touch()
    except OSError:
        return taken[:-1]


def test_shards_that_others_leave_no_room_beside_stay(volume: Volume, store: Any, shards: list[StoredObject]) -> None:
    folder = volume(400 * KIB)
    earlier = PackedBackend(store, folder)
    for shard in shards[:3]:
        data(earlier, shard)
    earlier.close()
    fill(folder)
    later = PackedBackend(store, folder)
    for shard in shards[:6]:
        assert data(later, shard) == data(DirectReads(store), shard)
    assert held(folder) == {shard.sha256 for shard in shards[:3]}, "removing them could not have made room"
    assert later.stats().hits == 3 and later.stats().degraded


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_write_that_finds_no_room_leaves_nothing_half_written(
    volume: Volume, store: Any, shards: list[StoredObject], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, now = volume(VOLUME_BYTES[backend]), 0.0
    for module in (packed_backend, diskcache_backend):
        monkeypatch.setattr(module, "room_bytes", lambda *_: 1 << 40)  # others take the room after the look
    cache: Any = BACKENDS[backend](store, folder, clock=lambda: now)
    expected = [data(DirectReads(store), shard) for shard in shards[:6]]
    assert data(cache, shards[0]) == expected[0]
    filler = fill(folder)
    assert [data(cache, shard) for shard in shards[:6]] == expected
    assert cache.stats().degraded
    assert not list(folder.rglob("*.part"))
    if backend == "packed":
        assert held(folder) == {shards[0].sha256}
    filler.unlink()
    now, again = RETRY_S, BACKENDS[backend](store, folder)
    for one in (cache, again):
        assert [data(one, shard) for shard in shards[:6]] == expected
        assert not one.stats().degraded and one.stats().corrupt == 0


class FailsMeanwhile(FolderStore):
    """A store that gives one shard only after the disk has failed for another."""

    def __init__(self, root: Path, early: str, late: str) -> None:
        super().__init__(root)
        self._early, self._late = early, late
        self.asked, self.failed = threading.Event(), threading.Event()

    def download(self, key: str, path: Path, *, size: int, sha256: str) -> None:
        if key == self._late:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        if key == self._early:
            self.asked.set()
            assert self.failed.wait(60)
        super().download(key, path, size=size, sha256=sha256)


def test_a_shard_asked_for_before_the_disk_failed_does_not_end_its_rest(
    tmp_path: Path, store: Any, shards: list[StoredObject]
) -> None:
    now, early, late, others = 0.0, shards[0], shards[1], shards[2:5]
    slow = FailsMeanwhile(tmp_path / "store", early.key, late.key)
    cache = PackedBackend(slow, tmp_path / "cache", clock=lambda: now)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(data, cache, early)
        assert slow.asked.wait(60)
        assert data(cache, late) == data(DirectReads(store), late) and cache.stats().degraded
        slow.failed.set()
        assert first.result() == data(DirectReads(store), early)
    assert cache.stats().degraded, "it ended before the disk had rested"
    now = RETRY_S
    assert [data(cache, shard) for shard in others] == [data(DirectReads(store), shard) for shard in others]
    assert not cache.stats().degraded


class FillsTheVolume(FolderStore):
    """A store whose third answer comes when somebody else has filled the volume."""

    def __init__(self, root: Path, folder: Path) -> None:
        super().__init__(root)
        self._folder, self._answers = folder, 0

    def download(self, key: str, path: Path, *, size: int, sha256: str) -> None:
        self._fill()
        super().download(key, path, size=size, sha256=sha256)

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        self._fill()
        return super().get_range(key, offset, length)

    def _fill(self) -> None:
        self._answers += 1
        if self._answers == 3:
            fill(self._folder)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("loader", ["ring", "process"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_epoch_on_a_volume_that_fills_up_is_the_clean_one(
    volume: Volume, tmp_path: Path, backend: str, loader: str
) -> None:
    folder = volume(16 * KIB * KIB)
    store = FillsTheVolume(tmp_path / "store", folder)
    digest = build_test_cache(FolderStore(tmp_path / "store"))
    clean = deliver(FolderStore(tmp_path / "store"), digest, None).digest
    found = deliver(store, digest, folder / "cache", backend=backend, loader=loader, threads=2)
    assert (folder / "of-somebody-else").exists() and found.digest == clean
    assert not list(folder.rglob("*.part"))
    if backend == "packed":
        assert found.stats.degraded
    (folder / "of-somebody-else").unlink()
    again = deliver(FolderStore(tmp_path / "store"), digest, folder / "cache", backend=backend, threads=2)
    assert again.digest == clean and not again.stats.degraded and again.stats.corrupt == 0
