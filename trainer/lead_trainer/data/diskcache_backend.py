"""Session cache of single records in python-diskcache: bytes values, one entry a record, removed by diskcache's limit.

A value is the record itself, whose header and checksum are verified on every read.
"""

import logging
import sqlite3
from pathlib import Path

import diskcache

from lead_protocol.manifests import StoredObject
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.data.record import CorruptRecord, Record, decode_record
from lead_trainer.data.session_cache import CacheStats, Counters, DirectReads

LOG = logging.getLogger(__name__)

NO_LIMIT = 1 << 60
_DISK_ERRORS = (OSError, sqlite3.Error, diskcache.Timeout)


class DiskcacheBackend:
    """Records in a diskcache; see the module."""

    def __init__(self, store: ObjectStore, folder: Path, limit_bytes: int = 0) -> None:
        """`limit_bytes` 0: no limit but the volume's own."""
        self._counters = Counters()
        self._direct = DirectReads(store, self._counters)
        self._cache: diskcache.Cache | None = None
        try:
            self._cache = diskcache.Cache(
                str(folder / "diskcache"), size_limit=limit_bytes or NO_LIMIT, eviction_policy="least-recently-stored"
            )
        except _DISK_ERRORS as error:
            self._degrade(error)

    def record(self, shard: StoredObject, slot: int) -> Record:
        """Returns one record, from the disk where it is there and sound."""
        key = f"{shard.sha256}/{slot}"
        value = self._get(key)
        if value is not None:
            try:
                record = decode_record(value)
                self._counters.add(hits=1)
                return record
            except CorruptRecord as error:
                LOG.warning("cached record %s is damaged (%s); fetching it again", key, error)
                self._counters.add(corrupt=1)
        data = self._direct.record_bytes(shard, slot)
        self._set(key, data)
        return decode_record(data)

    def stats(self) -> CacheStats:
        """Returns the counters."""
        return self._counters.read()

    def close(self) -> None:
        """Closes the database connections of this thread."""
        if self._cache is not None:
            self._cache.close()

    def _get(self, key: str) -> bytes | None:
        if self._cache is None:
            return None
        try:
            value = self._cache.get(key)
        except _DISK_ERRORS as error:
            self._degrade(error)
            return None
        return value if isinstance(value, bytes) else None

    def _set(self, key: str, data: bytes) -> None:
        if self._cache is None:
            return
        try:
            self._cache.set(key, data)
        except _DISK_ERRORS as error:
            self._degrade(error)

    def _degrade(self, error: Exception) -> None:
        LOG.warning("session cache cannot be used (%s); reading from the store", error)
        self._counters.degrade()
        self._cache = None
