"""A committed cache, read: manifest, tables, metas, and the checked record of any sample. Opened by trainer and tools.

It starts from the manifest and verifies every table it reads by SHA-256; it never lists a prefix.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lead_protocol.manifests import CacheManifest, StoredObject, sha256_hex
from lead_protocol.object_keys import LOCAL_NAMESPACE, CacheKeys
from lead_protocol.store.object_store import ObjectCorrupt, ObjectNotFound, ObjectStore
from lead_trainer.contract.samples import Indices
from lead_trainer.data.cache_tables import CollectionRows, MetaColumns, collection_rows, joined_metas, read_table
from lead_trainer.data.ordered_pool import ordered_map
from lead_trainer.data.sample_places import SamplePlaces
from lead_trainer.data.session_cache import TRIES, CacheStats, DirectReads, SessionCache
from lead_trainer.data.shared_table import shared_table
from lead_trainer.data.stored_manifest import REBUILD, stored_manifest
from lead_trainer.errors import BadConfig, BadData

TABLE_THREADS = 4


class CacheReader:
    """One cache; safe to share between threads."""

    def __init__(
        self, store: ObjectStore, digest: str, session_cache: SessionCache | None = None,
        *, namespace: str = LOCAL_NAMESPACE, manifest_sha256: str = "", name: str = "",
    ) -> None:  # fmt: skip
        """Reads the manifest; raises BadData where the cache does not exist, is not complete, or has another manifest.

        `manifest_sha256`: of the manifest that was verified when the cache was published; empty takes any.
        `name`: of the DatasetCache, for messages; empty without a cluster.
        """
        keys = CacheKeys(namespace, digest)
        manifest = stored_manifest(store, keys, manifest_sha256)
        if manifest is None:
            raise BadData(f"cache {store.url}/{keys.prefix} does not exist or is not complete; build it")
        self.manifest: CacheManifest = manifest
        self._name = name
        self._store = store
        self._session = session_cache or DirectReads(store)
        self._lock = threading.Lock()
        self._rows: WeakValueDictionary[str, CollectionRows] = WeakValueDictionary()
        self._rows_lock = threading.Lock()
        self._places = SamplePlaces(manifest)
        self._metas: MetaColumns | None = None

    @property
    def digest(self) -> str:
        """The cache's name."""
        return self.manifest.digest

    @property
    def session(self) -> SessionCache:
        """The node's copy of the shards."""
        return self._session

    @property
    def config(self) -> Mapping[str, Any]:
        """The config values the cache was built with."""
        return self.manifest.config

    @property
    def facts(self) -> Mapping[str, Sequence[float]]:
        """What the build states of all samples together, by name."""
        return self.manifest.facts

    def rows(self, collection: str) -> CollectionRows:
        """Returns a collection's rows; raises BadConfig naming the ones the cache has.

        They are kept for as long as somebody else does: who cuts some rows out of them needs the rest no more.
        """
        entry = self.manifest.collections.get(collection)
        if entry is None:
            held = ", ".join(sorted(self.manifest.collections))
            where = f"DatasetCache {self._name}" if self._name else f"cache {self.digest[:12]}"
            add = "add it to spec.collections there" if self._name else "build a cache with it"
            raise BadConfig(f"collection {collection!r} is not in {where}, which has: {held}; {add}")
        with self._rows_lock:
            rows = self._rows.get(collection)
            if rows is None:
                rows, places = collection_rows(collection, self._table(entry.object))
                self._places.add(collection, places)
                self._rows[collection] = rows
            return rows

    def sample_shards(self, samples: npt.NDArray[np.integer]) -> Indices:
        """Returns the shard of each sample of collections whose rows were read, by the samples' numbers."""
        return self._places.shards(samples)

    def verdicts(self) -> pa.Table:
        """Returns the per-route verdicts."""
        return read_table(self._table(self.manifest.routes_object), "route verdicts")

    def metas(self) -> MetaColumns:
        """Returns the metas of every frame; fetched once a node where there is a session cache, and mapped."""
        with self._lock:
            if self._metas is None:
                self._metas = MetaColumns(shared_table(self._session.tables, self.digest, self._fetched_metas))
            return self._metas

    def fields(self, sample: int) -> Mapping[str, memoryview]:
        """Returns one sample's fields, checked; raises BadData naming the shard when it stays damaged."""
        shard, slot = self._place(sample)
        return self._session.record(self.manifest.shards[shard].object, slot, sample).fields

    def fetch_shard(self, shard: int) -> bool:
        """Fetches a shard to this node before its samples are needed; see `SessionCache.fetch`."""
        return self._session.fetch(self.manifest.shards[shard].object)

    def stats(self) -> CacheStats:
        """Returns the session cache's counters."""
        return self._session.stats()

    def close(self) -> None:
        """Lets go of the session cache."""
        self._session.close()

    def _place(self, sample: int) -> tuple[int, int]:
        for name in self.manifest.collections:  # none, where the samples came from rows of this reader
            if self._places.has(sample):
                break
            self.rows(name)
        return self._places.of(sample)

    def _fetched_metas(self) -> pa.Table:
        blobs = ordered_map(self._table, self.manifest.metas, TABLE_THREADS)
        return joined_metas([read_table(blob, "metas") for blob in blobs])

    def _table(self, item: StoredObject) -> bytes:
        for _ in range(TRIES):  # it may have been corrupted in transit
            try:
                data = self._store.get(item.key, max_bytes=item.size)
            except ObjectNotFound as error:
                raise BadData(f"{self._store.url}/{item.key} is missing; {REBUILD}") from error
            except ObjectCorrupt:
                continue
            if len(data) == item.size and sha256_hex(data) == item.sha256:
                return data
        raise BadData(f"{self._store.url}/{item.key} is not what the manifest vouches for; {REBUILD}")
