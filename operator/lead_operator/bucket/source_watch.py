"""Checks now and then whether the raw data below a prefix is still what a complete cache was built from.

Asked by `controllers.dataset_cache` at each pass over a complete cache, and over one that failed for its data; answers
with what the last listing came to and, when that is too old, takes a new one in threads of its own, a few seconds at a
time, so that the large source of one namespace holds up no other's. Of a listing it holds the hash and, of the one
that a cache was built from, a checksum of each route, so that it can name those that change.
"""

import asyncio
import math
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import structlog

from lead_operator.bucket.store_threads import StoreThreads
from lead_operator.decisions.observed import ObservedSource
from lead_operator.memory import Memories, Part
from lead_operator.settings import StorageProfile
from lead_protocol.source_listing import ListingHash, is_cached_view, is_picture, is_raw
from lead_protocol.store.object_store import ObjectInfo, ObjectStore, StoreError

THREADS = 2  # of each profile
PORTION_S = 5.0  # after which others have their turn
MAX_FILES = 20_000_000  # a listing beyond it is given up: it would take hours
MAX_PLACES = 50_000  # beyond it none is named: some ten megabytes of memory

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class SourceListing:
    """What one listing came to, with a checksum of all files of each place; no places where there are too many."""

    sha256: str
    files: int
    places: dict[str, int]


@dataclass
class _Memory(Part):
    """What is kept of one source."""

    prefix: str = ""
    built_from: str = ""  # hash of the listing that the cache was built from
    due: float = 0.0
    places: dict[str, int] | None = None  # of that listing, if this process has seen it
    found: ObservedSource | None = None
    task: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Ends its listing."""
        if self.task is not None:
            self.task.cancel()


class SourceWatch:
    """The sources of all complete caches."""

    def __init__(
        self,
        store_of: Callable[[StorageProfile], ObjectStore],
        every_s: float,
        memories: Memories | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self._store_of = store_of
        self._every_s = every_s
        self._memories = memories or Memories()
        self._threads = StoreThreads(THREADS, "source")

    def observe(
        self, profile: StorageProfile, namespace: str, uid: str, prefix: str, built_from: str,
        *, at_least_every_s: float = math.inf,
    ) -> ObservedSource | None:  # fmt: skip
        """Returns what the last listing of a resource's source came to, None before there is one; never waits."""
        memory = self._memories.find(uid, _Memory)
        found = memory.found if memory is not None and not memory.built_from else None
        if memory is not None and found is not None and (memory.prefix, found.sha256) == (prefix, built_from):
            memory.built_from = built_from  # a failed build's source has been recorded as it was found here
        if memory is None or (memory.prefix, memory.built_from) != (prefix, built_from):
            memory = self._memories.put(uid, _Memory(prefix, built_from))
        if memory.task is None and self._now() >= memory.due:
            listing = self._list(profile, namespace, memory, min(self._every_s, at_least_every_s))
            memory.task = asyncio.get_running_loop().create_task(listing, name=f"source {prefix}")
        return memory.found

    def close(self) -> None:
        """Starts no more; the memory of each resource ends its own."""
        self._threads.close()

    async def _list(self, profile: StorageProfile, namespace: str, memory: _Memory, every_s: float) -> None:
        try:
            lister = SourceLister(self._store_of(profile), memory.prefix, now=self._now)
            while not await self._threads.run(profile.name, namespace, lister.go_on, PORTION_S):
                pass
            listing = lister.listing
            if listing is not None and listing.sha256 == memory.built_from:
                memory.places = listing.places
            memory.found = None if listing is None else compare(listing, memory.places)
        except StoreError as error:
            log.info("source_not_listed", prefix=memory.prefix, error=str(error))  # the next pass retries
        finally:
            memory.due = self._now() + every_s
            memory.task = None


@dataclass
class _Sum:
    """What the files so far come to."""

    most_places: int
    hash: ListingHash = field(default_factory=ListingHash)
    places: dict[str, int] = field(default_factory=dict)

    def add(self, path: str, info: ObjectInfo) -> None:
        self.hash.add(path, info.size, info.etag)
        if len(self.places) <= self.most_places:
            folder = path.rpartition("/")[0]
            place = folder if folder in self.places else place_of(path)  # a route's own files come after its sensors'
            checksum = zlib.crc32(f"{path}\0{info.size}\0{info.etag}\0".encode(), self.places.get(place, 0))
            self.places[place] = checksum

    def copy(self) -> Self:
        return type(self)(self.most_places, self.hash.copy(), dict(self.places))


class SourceLister:
    """One listing of the raw data below a prefix, taken in portions."""

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        most_places: int = MAX_PLACES,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self.listing: SourceListing | None = None  # None until the end, and where it is too much to list
        self._prefix = prefix
        self._below = f"{prefix.strip('/')}/"
        self._objects = store.list(self._below)  # in key order, which is path order
        self._most_places = most_places
        self._raw = _Sum(most_places)
        self._with_cache: _Sum | None = None  # LEAD's persistent cache counted in, until there is a picture
        self._has_pictures = False

    def go_on(self, for_s: float) -> bool:
        """Lists on for some seconds; returns whether it has come to its end; raises StoreError."""
        until = self._now() + for_s
        for info in self._objects:
            path = info.key[len(self._below) :]
            if not path.endswith("/"):
                self._add(path, info)
            if self._sums[-1].hash.files > MAX_FILES:
                log.warning("source_too_large_to_compare", prefix=self._prefix, files=MAX_FILES)
                return True
            if self._now() >= until:
                return False
        whole = self._sums[-1]
        places = whole.places if len(whole.places) <= self._most_places else {}
        self.listing = SourceListing(whole.hash.hexdigest(), whole.hash.files, places)
        return True

    @property
    def _sums(self) -> tuple[_Sum, ...]:
        return (self._raw,) if self._with_cache is None else (self._raw, self._with_cache)

    def _add(self, path: str, info: ObjectInfo) -> None:
        if is_raw(path):
            if not self._has_pictures and is_picture(path):
                self._has_pictures, self._with_cache = True, None
            for whole in self._sums:
                whole.add(path, info)
        elif is_cached_view(path) and not self._has_pictures:
            self._with_cache = self._with_cache or self._raw.copy()
            self._with_cache.add(path, info)


def list_source(store: ObjectStore, prefix: str, most_places: int = MAX_PLACES) -> SourceListing | None:
    """Returns the hash of the raw data below `prefix`, as build pods compute it; None where it is too much to list."""
    lister = SourceLister(store, prefix, most_places)
    lister.go_on(math.inf)
    return lister.listing


def place_of(path: str) -> str:
    """Returns what a file is counted to: the folder above its own (of a sensor), or itself where it lies higher.

    Example: `data/Accident/route1/rgb/0001.jpg` belongs to `data/Accident/route1`, and `trainval/log.db` is its own.
    """
    folders = path.split("/")
    return "/".join(folders[:-2]) if len(folders) > 2 else path


def compare(listing: SourceListing, before: dict[str, int] | None) -> ObservedSource:
    """Returns a listing with the places that differ from those before; none where either is not known."""
    now = listing.places
    if not now or not before:
        return ObservedSource(listing.sha256, listing.files)
    return ObservedSource(
        listing.sha256,
        listing.files,
        added=tuple(sorted(now.keys() - before.keys())),
        removed=tuple(sorted(before.keys() - now.keys())),
        replaced=tuple(sorted(place for place in now.keys() & before.keys() if now[place] != before[place])),
    )
