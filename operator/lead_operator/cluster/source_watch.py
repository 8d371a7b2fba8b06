"""Looks now and then whether the raw data below a prefix is still what a complete cache was built from.

Asked by `cluster.reconcile` at each pass over a complete cache; answers with what the last listing came to and, when
that is too old, takes a new one in a thread of its own, one source at a time. It holds no listing, only its hash.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import structlog

from lead_operator.decisions.observed import ObservedSource
from lead_operator.settings import StorageProfile
from lead_protocol.source_listing import ListingHash
from lead_protocol.store.object_store import ObjectStore, StoreError

MAX_FILES = 20_000_000  # a listing beyond it is given up: it would take hours

log = structlog.get_logger(__name__)


@dataclass
class _Memory:
    """What is kept of one source."""

    prefix: str
    due: float = 0.0
    found: ObservedSource | None = None
    task: asyncio.Task[None] | None = None


class SourceWatch:
    """The sources of all complete caches."""

    def __init__(self, store_of: Callable[[StorageProfile], ObjectStore], every_s: float) -> None:
        self._store_of = store_of
        self._every_s = every_s
        self._memories: dict[str, _Memory] = {}
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="source")

    def look(self, profile: StorageProfile, uid: str, prefix: str) -> ObservedSource | None:
        """Returns what the last listing of a resource's source came to, None before there is one; never waits."""
        memory = self._memories.get(uid)
        if memory is None or memory.prefix != prefix:
            self.forget(uid)
            memory = self._memories[uid] = _Memory(prefix)
        if memory.task is None and time.monotonic() >= memory.due:
            memory.task = asyncio.get_running_loop().create_task(self._list(profile, memory), name=f"source {prefix}")
        return memory.found

    def forget(self, uid: str) -> None:
        """Drops what is remembered of a resource that is gone, or is being built anew."""
        memory = self._memories.pop(uid, None)
        if memory is not None and memory.task is not None:
            memory.task.cancel()

    def close(self) -> None:
        """Ends all listings."""
        for uid in list(self._memories):
            self.forget(uid)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _list(self, profile: StorageProfile, memory: _Memory) -> None:
        loop = asyncio.get_running_loop()
        try:
            memory.found = await loop.run_in_executor(
                self._threads, list_source, self._store_of(profile), memory.prefix
            )
        except StoreError as error:
            log.info("source_not_listed", prefix=memory.prefix, error=str(error))  # the next look tries again
        finally:
            memory.due = time.monotonic() + self._every_s
            memory.task = None


def list_source(store: ObjectStore, prefix: str) -> ObservedSource | None:
    """Returns the hash of everything below `prefix`, as a build pod computes it; None where it is too much to list."""
    below = f"{prefix.strip('/')}/"
    listing = ListingHash()
    for info in store.list(below):  # in key order, which is path order
        if info.key.endswith("/"):
            continue
        if listing.files == MAX_FILES:
            log.warning("source_too_large_to_compare", prefix=prefix, files=MAX_FILES)
            return None
        listing.add(info.key[len(below) :], info.size, info.etag)
    return ObservedSource(listing.hexdigest(), listing.files)
