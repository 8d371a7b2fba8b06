"""Removes the data of a DatasetCache that was deleted with `retain: Delete`, with the operator's own credential.

Called by `controllers.cache_finalizer`, again and again until nothing is left; each call reads and removes a bounded
number of objects in a thread, so that no pass waits long, and namespaces take turns. Manifests go first: what is left
at any moment is never taken for a complete cache. A killed operator goes on where it stopped. After an error all
removals of that namespace pause, whatever their number: what lies there may be what the store fails at.
What pods have put below builds/ need not be readable: to remove an object it is not read.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeVar

import structlog
from pydantic import ValidationError

from lead_operator.bucket.build_records import MAX_RECORD_BYTES, BuildResult
from lead_operator.bucket.store_backoff import StoreBackoff
from lead_operator.bucket.store_threads import StoreThreads
from lead_operator.settings import StorageProfile
from lead_protocol.object_keys import BuildKeys, CacheKeys
from lead_protocol.store.key_rules import UnsafeKey, check_key
from lead_protocol.store.object_store import ObjectCorrupt, ObjectNotFound, ObjectStore, StoreDenied, StoreError

THREADS = 4  # of each profile
PORTION = 500  # objects of one call
MAX_RECORDS = 2000  # of pods of one resource that are read; more are of no build
AFTER_ERROR_S = 30.0

Result = TypeVar("Result")

log = structlog.get_logger(__name__)


class CacheDataGC:
    """Removes what builds of deleted resources came to."""

    def __init__(
        self,
        store_of: Callable[[StorageProfile], ObjectStore],
        on_denied: Callable[[StorageProfile], None],
        backoff: StoreBackoff | None = None,
    ) -> None:
        self._backoff = backoff or StoreBackoff(AFTER_ERROR_S)
        self._store_of = store_of
        self._on_denied = on_denied
        self._threads = StoreThreads(THREADS, "removal")

    async def digests(self, profile: StorageProfile, keys: BuildKeys) -> set[str]:
        """Returns every digest that builds of a resource came to or were on their way to; raises StoreError."""
        return await self._in_thread(profile, keys, read_digests)

    async def remove(self, profile: StorageProfile, keys: BuildKeys, doomed: set[str]) -> bool:
        """Removes a portion of the digests `doomed`; returns whether nothing is left; raises StoreError."""
        return await self._in_thread(profile, keys, remove_portion, doomed)

    async def _in_thread(
        self, profile: StorageProfile, keys: BuildKeys, work: Callable[..., Result], *arguments: object
    ) -> Result:
        whose = (profile.name, keys.namespace)

        def asked() -> Result:
            recent = self._backoff.error(*whose)  # in the thread: it holds for those that waited for it too
            if recent is not None:
                raise recent
            try:
                return work(store, keys, *arguments)
            except StoreError as found:
                self._backoff.note(*whose, found)
                raise

        try:
            store = self._store_of(profile)
            return await self._threads.run(*whose, asked)
        except StoreDenied:
            self._on_denied(profile)
            raise

    def close(self) -> None:
        """Starts no more."""
        self._threads.close()


def remove_portion(store: ObjectStore, keys: BuildKeys, doomed: set[str], most: int = PORTION) -> bool:
    """Removes at most so many objects of caches, then of the build that came to them; returns whether none is left."""
    caches = (CacheKeys(keys.namespace, digest) for digest in sorted(doomed))
    portion = list(islice((key for cache in caches for key in _data(store, cache)), most))
    own = (keys.prefix, keys.control.prefix)
    if not portion:
        portion = list(islice((key for prefix in own for key in _removable(store, prefix)), most))
    for key in portion:
        store.delete(key)
    if portion:
        log.info("cache_data_removed", build=keys.prefix, objects=len(portion))
    return len(portion) < most and not any(any(_removable(store, prefix)) for prefix in own)


def _data(store: ObjectStore, cache: CacheKeys) -> Iterator[str]:
    if store.head(cache.manifest) is not None:
        yield cache.manifest
    yield from (info.key for info in store.list(cache.prefix) if info.key != cache.manifest)


def _removable(store: ObjectStore, prefix: str) -> Iterator[str]:
    """Yields the keys below a prefix, except those that no request may name: they would block the removal forever."""
    for info in store.list(prefix):
        try:
            yield check_key(info.key)
        except UnsafeKey as error:
            log.warning("cache_data_left", data=[prefix], error=str(error))


def read_digests(store: ObjectStore, keys: BuildKeys) -> set[str]:
    """Returns the digests that a resource was published as, and those whose publication was left half done.

    What the records of its pods name counts only while no such cache is published: a pod must not name another's.
    """
    own = (info.key for info in store.list(keys.control.prefix))
    found = {digest for key in own if (digest := _digest_in(store, key))}
    listed = (info.key for info in store.list(keys.prefix) if not info.key.startswith(keys.staged_prefix))
    claimed = {digest for key in islice(listed, MAX_RECORDS) if (digest := _claim_in(store, key))}
    return found | {d for d in claimed - found if store.head(CacheKeys(keys.namespace, d).manifest) is None}


def _claim_in(store: ObjectStore, key: str) -> str:
    try:
        return _digest_in(store, key)
    except StoreError as error:
        if not _is_of_object(error):
            raise
        log.warning("build_record_unreadable", key=key, error=str(error))
        return ""


def _is_of_object(error: StoreError) -> bool:
    """Returns whether the store answered and it is this object that it does not give out.

    A pod may have encrypted it with a key of its own (400), put it into an archive (403), or named it as nobody may.
    """
    return type(error) in (StoreError, UnsafeKey) or (isinstance(error, StoreDenied) and error.of_key is False)


def _digest_in(store: ObjectStore, key: str) -> str:
    try:
        return BuildResult.model_validate_json(store.get(key, max_bytes=MAX_RECORD_BYTES)).digest
    except (ObjectNotFound, ObjectCorrupt, ValidationError):
        return ""
