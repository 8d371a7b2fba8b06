"""Removes the data of a DatasetCache that was deleted with `retain: Delete`, with the operator's own credential.

Called by `cluster.reconcile`, again and again until nothing is left; each call removes a bounded number of objects in a
thread, so that no pass waits long. Manifests go first: what
is left at any moment is never taken for a complete cache. A killed operator goes on where it stopped. After an error
the store rests for a while, whatever the number of caches.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import structlog
from pydantic import ValidationError

from lead_operator.cluster.bucket_view import MAX_RECORD_BYTES, BuildResult
from lead_operator.settings import StorageProfile
from lead_protocol.object_keys import BuildKeys, CacheKeys
from lead_protocol.store.object_store import ObjectCorrupt, ObjectNotFound, ObjectStore, StoreDenied, StoreError

PORTION = 500  # objects of one call
REST_AFTER_ERROR_S = 30.0

Result = TypeVar("Result")

log = structlog.get_logger(__name__)


class CacheRemoval:
    """Removes what builds of deleted resources came to."""

    def __init__(
        self, store_of: Callable[[StorageProfile], ObjectStore], on_denied: Callable[[StorageProfile], None]
    ) -> None:
        self._store_of = store_of
        self._on_denied = on_denied
        self._resting: dict[str, tuple[float, StoreError]] = {}  # profile -> until when, because of which error
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="removal")

    async def digests(self, profile: StorageProfile, keys: BuildKeys) -> set[str]:
        """Returns every digest that builds of a resource came to or were on their way to; raises StoreError."""
        return await self._in_thread(profile, read_digests, keys)

    async def remove(self, profile: StorageProfile, keys: BuildKeys, doomed: set[str]) -> bool:
        """Removes a portion of the digests `doomed`; returns whether nothing is left; raises StoreError."""
        return await self._in_thread(profile, remove_portion, keys, doomed)

    async def _in_thread(self, profile: StorageProfile, work: Callable[..., Result], *arguments: object) -> Result:
        def asked() -> Result:
            until, error = self._resting.get(profile.name, (0.0, None))
            if error is not None and time.monotonic() < until:  # in the thread: those that waited for it rest too
                raise error.with_traceback(None)
            try:
                return work(store, *arguments)
            except StoreError as found:
                self._resting[profile.name] = (time.monotonic() + REST_AFTER_ERROR_S, found)
                raise

        try:
            store = self._store_of(profile)
            return await asyncio.get_running_loop().run_in_executor(self._threads, asked)
        except StoreDenied:
            self._on_denied(profile)
            raise

    def close(self) -> None:
        """Starts no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def remove_portion(store: ObjectStore, keys: BuildKeys, doomed: set[str]) -> bool:
    """Removes at most PORTION objects of caches, then of the build that came to them; returns whether none is left."""
    caches = (CacheKeys(keys.namespace, digest) for digest in sorted(doomed))
    portion = list(islice((key for cache in caches for key in _data(store, cache)), PORTION))
    own = (keys.prefix, keys.control.prefix)
    if not portion:
        portion = list(islice((info.key for prefix in own for info in store.list(prefix)), PORTION))
    for key in portion:
        store.delete(key)
    if portion:
        log.info("cache_data_removed", build=keys.prefix, objects=len(portion))
    return len(portion) < PORTION and not any(any(store.list(prefix)) for prefix in own)


def _data(store: ObjectStore, cache: CacheKeys) -> Iterator[str]:
    if store.head(cache.manifest) is not None:
        yield cache.manifest
    yield from (info.key for info in store.list(cache.prefix) if info.key != cache.manifest)


def read_digests(store: ObjectStore, keys: BuildKeys) -> set[str]:
    """Returns the digests that a resource was published as, and those whose publication was left half done.

    What the records of its pods name counts only while no such cache is published: a pod must not name another's.
    """
    found = {digest for key in _small(store, keys.control.prefix) if (digest := _digest_in(store, key))}
    claimed = {digest for key in _small(store, keys.prefix, keys.staged_prefix) if (digest := _digest_in(store, key))}
    return found | {d for d in claimed - found if store.head(CacheKeys(keys.namespace, d).manifest) is None}


def _small(store: ObjectStore, prefix: str, but: str = "") -> Iterator[str]:
    return (info.key for info in store.list(prefix) if not but or not info.key.startswith(but))


def _digest_in(store: ObjectStore, key: str) -> str:
    try:
        digest = BuildResult.model_validate_json(store.get(key, max_bytes=MAX_RECORD_BYTES)).digest
    except (ObjectNotFound, ObjectCorrupt, ValidationError):
        return ""
    return digest if len(digest) == 64 and set(digest) <= set("0123456789abcdef") else ""
