"""Session cache of single records in python-diskcache: bytes values, one entry a record.

A value is the record itself, whose header and checksum are verified on every read; nothing is unpickled. At its limit,
as on a full volume, it stores no more and keeps what it has: an epoch reads every record once, in an order of its own,
so whatever made room would be missed as soon. Empty its folder to give another cache the room.
"""

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diskcache
import structlog
from diskcache.core import MODE_PICKLE

from lead_protocol.manifests import StoredObject
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.data.local_disk import refuse_shared_volume
from lead_trainer.data.record import CorruptRecord, Record, decode_record
from lead_trainer.data.session_cache import RETRY_S, CacheStats, Counters, DirectReads, refuse_other_sample
from lead_trainer.data.water_marks import HIGH, room_bytes, volume_is_full

log = structlog.get_logger(__name__)

NO_LIMIT = 1 << 60
KEEP_ALL = "none"  # diskcache's eviction policy
_DISK_ERRORS = (OSError, sqlite3.Error, diskcache.Timeout)


class _BytesOnly(diskcache.Disk):  # type: ignore[misc]
    """Refuses the entries that diskcache would unpickle: whoever may write to the volume could run code by one."""

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> Any:
        """Returns an entry's value, None (a miss) for a pickle."""
        return None if mode == MODE_PICKLE else super().fetch(mode, filename, value, read)


class DiskcacheBackend:
    """Records in a diskcache; see the module."""

    def __init__(
        self, store: ObjectStore, folder: Path, limit_bytes: int = 0, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`limit_bytes` 0: no limit but the volume's own."""
        self._clock = clock
        self._retry_at = clock()
        self._folder, self._limit = folder, limit_bytes or NO_LIMIT
        self._counters = Counters()
        self._direct = DirectReads(store, self._counters)
        self._cache: diskcache.Cache | None = None
        self._mutex = threading.Lock()  # of opening
        self._opened()

    def record(self, shard: StoredObject, slot: int, sample: int | None = None) -> Record:
        """Returns one record, from the disk where it exists and is valid."""
        key = f"{shard.sha256}/{slot}"
        value = self._get(key)
        if value is not None:
            try:
                record = refuse_other_sample(decode_record(value), sample)
                self._counters.handed_out(first=False)
                return record
            except CorruptRecord as error:
                log.warning("cached record is damaged; fetching it again", record=key, error=str(error))
                self._counters.add(corrupt=1)
        record, data = self._direct.read_record(shard, slot, sample)
        self._set(key, data)
        return record

    def fetch(self, shard: StoredObject) -> bool:
        """Keeps single records, each from its first use on."""
        return True

    def stats(self) -> CacheStats:
        """Returns the counters."""
        return self._counters.read()

    def close(self) -> None:
        """Closes the database connections of this thread."""
        if self._cache is not None:
            self._cache.close()

    @property
    def tables(self) -> Path | None:
        """Folder of the shared tables."""
        return self._folder / "tables"

    def _opened(self) -> diskcache.Cache | None:
        """Returns the cache; opens it, again after a rest when the disk failed; None while it cannot be used."""
        if self._cache is None and self._clock() >= self._retry_at:
            with self._mutex:
                if self._cache is None and self._clock() >= self._retry_at:
                    try:
                        self._folder.mkdir(parents=True, exist_ok=True)
                        refuse_shared_volume(self._folder)
                        self._cache = diskcache.Cache(
                            str(self._folder / "diskcache"),
                            disk=_BytesOnly,
                            size_limit=self._limit,
                            eviction_policy=KEEP_ALL,
                        )
                    except _DISK_ERRORS as error:
                        self._degrade(error)
        return self._cache

    def _get(self, key: str) -> bytes | None:
        cache = self._opened()
        if cache is None:
            return None
        try:
            value = cache.get(key, retry=True)
        except _DISK_ERRORS as error:
            self._degrade(error)
            return None
        return value if isinstance(value, bytes) else None

    def _set(self, key: str, data: bytes) -> None:
        cache = self._opened()
        if cache is None:
            return
        try:
            if len(data) > room_bytes(self._folder, HIGH):
                if not len(cache):
                    raise volume_is_full(self._folder)
                return
            if cache.volume() + len(data) > self._limit and key not in cache:  # a bad entry is replaced
                return
            cache.set(key, data, retry=True)
        except _DISK_ERRORS as error:
            self._degrade(error)
            return
        if self._counters.read().degraded and cache is self._cache:  # not one that another thread has found to fail
            log.warning("session cache can be used again")
            self._counters.degrade(False)

    def _degrade(self, error: Exception) -> None:
        if not self._counters.read().degraded:
            log.warning("session cache cannot be used; reading from the store", error=str(error))
        self._counters.degrade()
        self._retry_at = self._clock() + RETRY_S
        self._cache = None
