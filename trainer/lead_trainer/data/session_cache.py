"""The node-local copy of a cache's shards, behind one small interface with two backends.

`packed` (default) keeps whole shards as files; `diskcache` keeps single records. Both hand out checked
records only, fetch a bad one again, and turn a full or read-only disk into reads straight from the store, never into a
stop; such a disk is tried again after RETRY_S. Shared by the ranks and pods of a node. Opened by
`cache_reader`'s callers.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Protocol, TypeVar

from lead_protocol.manifests import StoredObject
from lead_protocol.store.object_store import ObjectCorrupt, ObjectNotFound, ObjectStore
from lead_trainer.data.record import CorruptRecord, Record
from lead_trainer.data.shard import ShardReader
from lead_trainer.data.shared_counters import SharedCounters
from lead_trainer.data.stored_manifest import REBUILD
from lead_trainer.errors import BadConfig, BadData, short_checksums

TRIES = 3
RETRY_S = 60.0  # how long a disk that failed is left alone
_READ = {"reads": 1}
_FIRST_READ = {"reads": 1, "first_reads": 1}
Result = TypeVar("Result")


@dataclass(frozen=True)
class CacheStats:
    """Counters since the process started; `degraded` means that the disk cannot be used."""

    reads: int = 0  # records handed out
    first_reads: int = 0  # of them, the ones that this process had not read from the disk before
    fetched: int = 0  # records that came from the store, alone or with their shard
    fetched_bytes: int = 0  # from the store
    corrupt: int = 0  # copies thrown away
    fetch_s: float = 0.0  # seconds that threads which wanted a record waited for the store
    degraded: bool = False  # for now: a disk is tried again

    @property
    def misses(self) -> int:
        """Reads that needed the store: not all records of a fetched shard may ever be read."""
        return min(self.fetched, self.first_reads)

    @property
    def hits(self) -> int:
        """Reads that needed nothing from the store."""
        return self.reads - self.misses


class Counters:
    """CacheStats that several threads, and forked worker processes, may add to."""

    def __init__(self) -> None:
        self._shared = SharedCounters([field.name for field in fields(CacheStats)])

    @contextmanager
    def fetching(self) -> Iterator[None]:
        """Counts the body's time as waiting for the store."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._shared.add({"fetch_s": time.perf_counter() - begin})

    def handed_out(self, *, first: bool) -> None:
        """Adds one record handed out, which is done for every sample."""
        self._shared.add(_FIRST_READ if first else _READ)

    def add(self, *, fetched: int = 0, fetched_bytes: int = 0, corrupt: int = 0) -> None:
        """Adds records that came from the store, its bytes, and copies thrown away."""
        self._shared.add({"fetched": fetched, "fetched_bytes": fetched_bytes, "corrupt": corrupt})

    def degrade(self, degraded: bool = True) -> None:
        """Notes whether the disk cannot be used."""
        self._shared.set("degraded", degraded)

    def read(self) -> CacheStats:
        """Returns the counters now."""
        now = self._shared.read()
        counts = {name: int(now[name]) for name in ("reads", "first_reads", "fetched", "fetched_bytes", "corrupt")}
        return CacheStats(**counts, fetch_s=now["fetch_s"], degraded=bool(now["degraded"]))


class SessionCache(Protocol):
    """Checked records of shards; safe to share between threads."""

    @property
    def tables(self) -> Path | None:
        """Folder of the tables that processes of the node share; None without a disk."""

    def record(self, shard: StoredObject, slot: int, sample: int | None = None) -> Record:
        """Returns one record, which must be of `sample` if that is given: files may be swapped.

        Raises BadData naming the shard when it stays bad after TRIES fetches.
        """

    def fetch(self, shard: StoredObject) -> bool:
        """Fetches a shard to the node before it is needed; returns False where that may succeed later.

        True too where shards are not kept whole. Raises StoreError, and CorruptRecord for a corrupt copy.
        """

    def stats(self) -> CacheStats:
        """Returns the counters."""

    def close(self) -> None:
        """Lets go of files and locks; the cache stays on the disk."""


class DirectReads:
    """No disk at all: every record is a range read. What the backends fall back to."""

    tables: Path | None = None

    def __init__(self, store: ObjectStore, counters: Counters | None = None) -> None:
        self._store = store
        self._counters = counters or Counters()
        self._readers: dict[str, ShardReader] = {}

    def record(self, shard: StoredObject, slot: int, sample: int | None = None) -> Record:
        """Returns one record straight from the store."""
        return self.read_record(shard, slot, sample)[0]

    def read_record(self, shard: StoredObject, slot: int, sample: int | None) -> tuple[Record, bytes]:
        """Returns one record, and the bytes it was; the shard's index is fetched once."""

        def fetch() -> tuple[Record, bytes]:
            with self._counters.fetching():
                record, data = self._reader(shard).read_record(slot)
            self._counters.handed_out(first=True)
            self._counters.add(fetched=1, fetched_bytes=len(data))
            return refuse_other_sample(record, sample), bytes(data)

        return with_tries(fetch, shard, self._store, self._counters, lambda: self._readers.pop(shard.sha256, None))

    def fetch(self, shard: StoredObject) -> bool:
        """Has nowhere to keep a shard."""
        return True

    def stats(self) -> CacheStats:
        """Returns the counters."""
        return self._counters.read()

    def close(self) -> None:
        """Has nothing to let go of."""

    def _reader(self, shard: StoredObject) -> ShardReader:
        reader = self._readers.get(shard.sha256)
        if reader is None:
            reader = ShardReader(lambda offset, length: self._store.get_range(shard.key, offset, length), shard.size)
            self._readers[shard.sha256] = reader
        return reader


def refuse_other_sample(record: Record, sample: int | None) -> Record:
    """Returns the record; raises CorruptRecord unless it is of `sample` (None: any)."""
    if sample is not None and record.sample_id != sample:
        raise CorruptRecord(f"the record is of sample {record.sample_id}, expected {sample}")
    return record


def with_tries(
    fetch: Callable[[], Result],
    shard: StoredObject,
    store: ObjectStore,
    counters: Counters,
    forget: Callable[[], object],
) -> Result:
    """Returns the first valid result of `fetch`, calling `forget` after each bad one.

    Raises BadData after TRIES, and at once for a shard that is not in the store.
    """
    last: Exception | None = None
    for _ in range(TRIES):
        try:
            return fetch()
        except ObjectNotFound as error:
            raise BadData(f"shard {store.url}/{shard.key} is missing; {REBUILD}") from error
        except (CorruptRecord, ObjectCorrupt) as error:
            counters.add(corrupt=1)
            forget()
            last = error
    raise BadData(
        f"shard {store.url}/{shard.key} is damaged in {TRIES} tries: {_cause(last, store.url)}; {REBUILD}"
    ) from last


def _cause(error: Exception | None, url: str) -> str:
    """Returns an error without the address it begins with and with short checksums: a final message has a limit."""
    return short_checksums(re.sub(rf"^{re.escape(url)}/\S+ ", "", str(error)))


def open_session_cache(backend: str, store: ObjectStore, folder: Path | None, limit_bytes: int) -> SessionCache:
    """Returns the named backend; without a folder, direct reads. Raises BadConfig for an unknown name."""
    from lead_trainer.data.diskcache_backend import DiskcacheBackend
    from lead_trainer.data.packed_backend import PackedBackend

    if folder is None:
        return DirectReads(store)
    backends: dict[str, Callable[[ObjectStore, Path, int], SessionCache]] = {
        "packed": PackedBackend,
        "diskcache": DiskcacheBackend,
    }
    if backend not in backends:
        raise BadConfig(f"session cache: found backend {backend!r}, expected one of {', '.join(backends)}")
    return backends[backend](store, folder, limit_bytes)
