"""Session cache of whole shards: one file a shard, fetched once a node.

    <folder>/shards/<sha256>    a complete, verified shard; readers keep it open under a shared flock
    <folder>/locks/<sha256>     flock of the one process that fetches it; freed by the kernel when that process dies.
                                Its length, without a byte in it, is the room that process was given
    <folder>/locks/<sha256>.away    touched when the store was away: who waited for that does not wait as long again
    <folder>/locks/room         flock of the one process that counts and makes room

A file under its final name is whole: downloads go to `.part`, are verified, synced and renamed by the store. Shards are
removed only when nobody holds them, oldest first, and only to make room: from the high water mark down to the low one.
What is being fetched counts whole against the limit from its start, so fetches at the same moment keep it together.

Records are read, not mapped: a file cut short or a disk that fails is an error then, where a mapping would be SIGBUS.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from lead_protocol.manifests import StoredObject
from lead_protocol.store.object_store import ObjectStore, StoreFull, StoreUnavailable
from lead_protocol.store.partial_file import SUFFIX
from lead_trainer.data.held_files import FileIdentity, HeldFile, file_at, identity, is_locked, remove_unlocked
from lead_trainer.data.local_disk import most_files, refuse_shared_volume
from lead_trainer.data.record import CorruptRecord, Record
from lead_trainer.data.session_cache import RETRY_S, CacheStats, Counters, DirectReads, refuse_other_sample, with_tries
from lead_trainer.data.shard import ShardReader
from lead_trainer.data.shared_table import locked
from lead_trainer.data.water_marks import HIGH, LOW, Mark, room_bytes, volume_is_full

log = structlog.get_logger(__name__)

ROOM = "room"
CHECK_EVERY_S = 5.0  # for shards that were removed while they are open


@dataclass(frozen=True)
class _OpenShard:
    reader: ShardReader  # keeps the file open, and with it the shared lock
    file: FileIdentity


class PackedBackend:
    """Whole shards in a folder; see the module."""

    def __init__(
        self, store: ObjectStore, folder: Path, limit_bytes: int = 0, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`limit_bytes` 0: no limit but the volume's own."""
        self._clock = clock
        self._resting_until = clock()  # after a disk error
        self._check_at = clock() + CHECK_EVERY_S
        self._store = store
        self._shards = folder / "shards"
        self._locks = folder / "locks"
        self._limit = limit_bytes
        self._counters = Counters()
        self._direct = DirectReads(store, self._counters)
        self._open: dict[str, _OpenShard] = {}
        self._seen: dict[str, bytearray] = {}  # by shard: which records were read, for the counters
        self._most = max(1, most_files() // 2)  # open at once: sockets and checkpoints need files too
        self._stays: set[str] = set()  # damaged shards that the disk did not let go of
        self._streamed: dict[str, float] = {}  # shards that did not fit, and when to retry
        self._mutex = threading.Lock()
        self._opening: dict[str, threading.Lock] = {}
        self._away: dict[str, tuple[int, StoreUnavailable]] = {}  # by shard: how often the store was away, and how
        try:
            self._make_folders()
        except OSError as error:
            self._degrade(error)

    def record(self, shard: StoredObject, slot: int, sample: int | None = None) -> Record:
        """Returns one record, from the disk where that is possible."""

        def fetch() -> Record:
            record = self._read(shard, slot)
            if record is None:
                return self._direct.record(shard, slot, sample)
            refuse_other_sample(record, sample)
            seen = self._seen[shard.sha256]
            self._counters.handed_out(first=not seen[slot])
            seen[slot] = 1
            return record

        return with_tries(fetch, shard, self._store, self._counters, lambda: self._quarantine(shard))

    def fetch(self, shard: StoredObject) -> bool:
        """Fetches a shard to the disk; returns False where it cannot take it for now.

        Raises StoreError, and CorruptRecord for a corrupt copy.
        """
        return self._reader(shard) is not None

    @property
    def tables(self) -> Path | None:
        """Folder of the shared tables: among the shards, so that their room is counted and can be had back."""
        return self._shards

    def stats(self) -> CacheStats:
        """Returns the counters; checks now and then whether the open shards are still on the disk."""
        if self._clock() >= self._check_at:
            self._check_at = self._clock() + CHECK_EVERY_S
            self._notice_removed()
        return self._counters.read()

    def close(self) -> None:
        """Lets go of the shards; records that were read stay what they are."""
        with self._mutex:
            self._open = {}

    def _read(self, shard: StoredObject, slot: int) -> Record | None:
        """Returns a record from the disk, None where the disk cannot hold or read its shard."""
        held = self._open.get(shard.sha256)
        reader = held.reader if held else None
        if reader is None:
            with self._counters.fetching():
                reader = self._reader(shard)
        try:
            return reader.record(slot) if reader else None
        except OSError as error:
            self._quarantine(shard)
            self._degrade(error)
            return None

    def _reader(self, shard: StoredObject) -> ShardReader | None:
        """Returns the open shard, fetching it first if needed; None where the disk cannot hold it."""
        held = self._open.get(shard.sha256)
        if held is not None:
            return held.reader
        if self._clock() < max(self._resting_until, self._streamed.get(shard.sha256, self._resting_until)):
            return self._found(shard)
        with self._mutex:
            opening = self._opening.setdefault(shard.sha256, threading.Lock())
            times, _ = self._away.get(shard.sha256, (0, None))
        with opening:  # other shards may be fetched meanwhile
            held = self._open.get(shard.sha256)
            if held is not None:
                return held.reader
            now, met = self._away.get(shard.sha256, (0, None))
            if met is not None and now > times:  # while this thread waited: it would wait as long again
                raise StoreUnavailable(str(met))
            try:
                return self._opened(shard)
            except StoreUnavailable as error:
                self._away[shard.sha256] = (now + 1, error)
                raise

    def _opened(self, shard: StoredObject) -> ShardReader | None:
        began = self._clock()
        try:
            self._make_folders()
            held = self._on_disk(shard) or self._fetched(shard)
        except (OSError, StoreFull) as error:
            self._degrade(error)
            return None
        if held is None:
            self._streamed[shard.sha256] = self._clock() + RETRY_S
            return None
        if self._counters.read().degraded and began >= self._resting_until:  # not one begun before the disk failed
            log.warning("session cache can be used again", folder=str(self._shards.parent))
            self._counters.degrade(False)
        return self._kept(shard, held)

    def _found(self, shard: StoredObject) -> ShardReader | None:
        """Returns a shard that is there already, while nothing is written to the disk."""
        path = self._shards / shard.sha256
        if shard.sha256 in self._stays or file_at(path) is None:
            return None
        try:
            refuse_shared_volume(self._shards)
            held = self._on_disk(shard)
        except (OSError, CorruptRecord) as error:
            log.debug("a shard is not read while the session cache rests", path=str(path), error=str(error))
            return None
        return self._kept(shard, held) if held else None

    def _kept(self, shard: StoredObject, held: _OpenShard) -> ShardReader:
        with self._mutex:
            while len(self._open) >= self._most:
                self._open.pop(next(iter(self._open)))  # opened again when it is read again
            self._open[shard.sha256] = held
            self._seen.setdefault(shard.sha256, bytearray(len(held.reader)))
        return held.reader

    def _notice_removed(self) -> None:
        """Degrades when open shards were removed by somebody else; they serve on, and are fetched again after a rest.

        Without this a wiped volume would stay empty, and the next run or pod would find it cold. A shard that another
        process has replaced, or is fetching again, as it does with a damaged one, is reopened.
        """
        with self._mutex:
            shards = list(self._open.items())
        rested = self._counters.read().degraded and self._clock() >= self._resting_until
        gone = 0
        for name, held in shards:
            there = file_at(self._shards / name)
            if there == held.file:
                continue
            removed = there is None and not is_locked(self._locks / name)
            gone += removed
            if rested or not removed:
                with self._mutex:
                    self._open.pop(name, None)
        if gone and not self._counters.read().degraded:
            self._degrade(FileNotFoundError(f"{gone} shards in use were removed from it"))

    def _make_folders(self) -> None:
        for path in (self._shards, self._locks):
            path.mkdir(parents=True, exist_ok=True)
        refuse_shared_volume(self._shards)

    def _on_disk(self, shard: StoredObject) -> _OpenShard | None:
        """Opens a shard that is on the disk and takes a shared lock on it."""
        try:
            held = HeldFile(self._shards / shard.sha256)
        except FileNotFoundError:
            return None
        if held.status.st_nlink == 0:  # removed between open and lock
            return None
        if held.status.st_size != shard.size:
            raise CorruptRecord(f"cached shard has {held.status.st_size} bytes, expected {shard.size}")
        return _OpenShard(ShardReader(held.read, shard.size), identity(held.status))

    def _fetched(self, shard: StoredObject) -> _OpenShard | None:
        """Fetches a shard, once a node: whoever waits for the lock finds the file there."""
        away, begin = self._locks / f"{shard.sha256}.away", time.time_ns()
        with locked(self._locks / shard.sha256) as lock:
            held = self._on_disk(shard)
            if held is not None:
                return held
            if away.exists() and away.stat().st_mtime_ns > begin:
                raise StoreUnavailable(f"{self._store.url}/{shard.key} did not come for another process of this node")
            for part in self._shards.glob(f"{shard.sha256}.*{SUFFIX}"):
                remove_unlocked(part)  # of a fetch that was killed, and so is the room it was given
            os.ftruncate(lock, 0)
            with locked(self._locks / ROOM):
                if not self._make_room(shard.size):
                    return None
                os.ftruncate(lock, shard.size)
            try:
                self._store.download(shard.key, self._shards / shard.sha256, size=shard.size, sha256=shard.sha256)
                held = self._on_disk(shard)
                self._counters.add(fetched=len(held.reader) if held else 0, fetched_bytes=shard.size)
                return held
            except StoreUnavailable:
                away.touch()
                raise
            finally:
                with suppress(OSError):  # of a dying disk; the length of a file that nobody locks counts nothing
                    os.ftruncate(lock, 0)

    def _make_room(self, size: int) -> bool:
        """Returns whether `size` bytes fit below the high mark; if not, removes unlocked files first, oldest first.

        Down to the low mark, and nothing where that could not help; raises OSError where only others could make room.
        """
        if size <= self._room(HIGH):
            return True
        # An empty file frees nothing, and may be a part that its writer is about to lock.
        files = sorted((status.st_mtime_ns, path, status.st_size) for path, status in self._files() if status.st_size)
        if size > room_bytes(self._shards, HIGH) + sum(held for _, _, held in files):
            raise volume_is_full(self._shards)
        coming = self._coming()  # a shard that has just come is unlocked until its fetcher opens it
        for _, path, _ in files:
            if path.name.partition(".")[0] in coming:
                continue
            if remove_unlocked(path) and size <= self._room(LOW):
                return True
        return size <= self._room(HIGH)

    def _room(self, mark: Mark) -> int:
        """Returns how many bytes may be added until volume or limit is at the mark."""
        coming, begun, held = self._coming(), 0, 0
        for path, status in self._files():
            if path.name.partition(".")[0] in coming:
                begun += status.st_size
            else:
                held += status.st_size
        whole = sum(coming.values())
        room = room_bytes(self._shards, mark) - max(0, whole - begun)
        return min(room, int(mark.of_limit * self._limit) - held - whole) if self._limit else room

    def _coming(self) -> dict[str, int]:
        """Returns the shards that are being fetched, here or in another process, and their sizes."""
        coming = {}
        for path in self._locks.iterdir():
            size = path.stat().st_size
            if size and is_locked(path):  # or its fetch was killed
                coming[path.name] = size
        return coming

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Yields what lies in the folder, parts being written included; other processes add and remove meanwhile."""
        for path in self._shards.iterdir():
            try:
                yield path, path.stat()
            except FileNotFoundError:
                continue

    def _quarantine(self, shard: StoredObject) -> None:
        """Takes a bad copy away, so that the next try fetches it again."""
        with self._mutex:
            self._open.pop(shard.sha256, None)
        log.warning("cached shard is damaged; fetching it again", shard=shard.sha256)
        try:
            (self._shards / shard.sha256).unlink(missing_ok=True)
            self._stays.discard(shard.sha256)
        except OSError as error:
            self._stays.add(shard.sha256)
            self._degrade(error)

    def _degrade(self, error: Exception) -> None:
        self._resting_until = self._clock() + RETRY_S
        if not self._counters.read().degraded:
            log.warning(
                "session cache cannot be used; reading from the store",
                folder=str(self._shards.parent),
                error=str(error),
            )
        self._counters.degrade()
