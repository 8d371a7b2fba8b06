"""Publishes staged caches with the operator's own key, beside the passes: build pods cannot write below caches/.

Asked by `controllers.dataset_cache` while a build is complete and not published; answers with how far it is. The work
is done in threads of its own, a few seconds at a time, one portion of a namespace at once, so that a large cache of
one team holds up nobody else's. A killed operator begins again and finds what is there: objects with the right SHA-256
are not copied twice. Which cache a resource was published as is recorded last, below control/. A cache that was
published before, for a resource that is gone or for another one, is verified first: until its objects are whole it is
asked for again now and then, and nothing of it is changed.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import structlog

from lead_operator.bucket.source_watch import list_source
from lead_operator.bucket.store_errors import explain_store_error
from lead_operator.bucket.store_threads import StoreThreads
from lead_operator.decisions.dataset_cache.verification import SOURCE_CHANGED, find_mismatch, source_mismatch
from lead_operator.decisions.observed import ObservedPublication
from lead_operator.decisions.plan import PublishRequest
from lead_operator.memory import Memories, Part
from lead_operator.settings import StorageProfile
from lead_protocol.cache_publication import (
    CacheDamaged,
    CacheRefused,
    PublicationStep,
    PublishedManifest,
    publication_steps,
)
from lead_protocol.manifests import CacheManifest
from lead_protocol.object_keys import BuildKeys
from lead_protocol.run_records import PublishedCache
from lead_protocol.store.object_store import ObjectStore, StoreDenied, StoreError
from lead_protocol.store.s3_target import S3Limits

THREADS = 4  # of each profile
PORTION_S = 5.0  # after which others have their turn
RETRY_S = 10.0  # after the store failed
RESTORED_S = 60.0  # until a damaged cache is verified again: somebody may have restored it
LIMITS = S3Limits(connect_s=3.0, read_s=300.0, total_s=600.0, longest_pause_s=5.0)  # a copy answers when it is done

log = structlog.get_logger(__name__)


@dataclass
class _Work(Part):
    """What is kept of one publication."""

    profile: StorageProfile
    request: PublishRequest
    seen: ObservedPublication = field(default_factory=ObservedPublication)
    steps: Iterator[PublicationStep] | None = None
    last: PublicationStep | None = None
    task: "asyncio.Task[None] | None" = None

    @property
    def keys(self) -> BuildKeys:
        return BuildKeys(self.request.namespace, self.request.uid)

    def close(self) -> None:
        """Ends the publication; the next operator goes on where it stopped."""
        if self.task is not None:
            self.task.cancel()


@dataclass
class CachePublisher:
    """The publications of all DatasetCaches at hand; used from the event loop only."""

    open_store: Callable[[StorageProfile], ObjectStore]
    on_end: Callable[[str], None]  # with the resource's UID: what is known of its bucket is old now
    memories: Memories = field(default_factory=Memories)
    retry_s: float = RETRY_S
    restored_s: float = RESTORED_S
    now: Callable[[], float] = time.monotonic
    _stores: dict[str, ObjectStore] = field(default_factory=dict)
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict)  # of each namespace
    _threads: StoreThreads = field(default_factory=lambda: StoreThreads(THREADS, "publication"))

    def observe(self, uid: str) -> ObservedPublication | None:
        """Returns how far the publication of a resource's cache is, None where none was asked for; never waits."""
        work = self.memories.find(uid, _Work)
        return None if work is None else replace(work.seen, digest=work.request.digest, rebuilds=work.request.rebuilds)

    def ask(self, profile: StorageProfile, request: PublishRequest) -> None:
        """Has a cache published soon; returns at once, and does nothing for a request that was asked before."""
        work = self.memories.find(request.uid, _Work)
        if work is not None and work.request == request:
            return
        work = self.memories.put(request.uid, _Work(profile, request))
        work.task = asyncio.get_running_loop().create_task(self._work(work), name=f"publish {request.digest[:12]}")

    def forget(self, uid: str) -> None:
        """Drops a publication that has ended, or that nobody asks for any more."""
        self.memories.drop(uid, _Work)

    def close(self) -> None:
        """Starts no more; the memory of each resource ends its own."""
        self._threads.close()

    async def _work(self, work: _Work) -> None:
        turn = self._turns.setdefault(work.request.namespace, asyncio.Lock())
        try:
            while not work.seen.ended:
                async with turn:  # one manifest of a namespace in memory, whatever pods have staged
                    found = await self._next(work)
                    while not (found.ended or found.waits):
                        work.seen = work.seen if work.seen.damaged else found  # damaged until the end proves otherwise
                        found = await self._next(work)
                    work.seen = found
                if found.waits:
                    await asyncio.sleep(self.retry_s if found.error else self.restored_s)
        except Exception as error:
            log.exception("publication_broke", build=work.keys.prefix)
            work.seen = ObservedPublication(reason="PublicationBroke", refused=f"{type(error).__name__}: {error}")
        finally:
            work.task = work.steps = work.last = None
            self.on_end(work.request.uid)

    async def _next(self, work: _Work) -> ObservedPublication:
        return await self._threads.run(work.profile.name, work.request.namespace, self._portion, work)

    def _portion(self, work: _Work) -> ObservedPublication:
        """Goes on for a while, in a thread; returns how far it is."""
        try:
            store = self._store(work.profile)
            if work.steps is None:
                leftovers = work.keys.staged_prefix
                staged = work.keys.staged(work.request.digest)
                work.steps = publication_steps(
                    store, staged, lambda m: check(store, work.request, m), leftovers, verify_published=True
                )
            until = self.now() + PORTION_S
            while self.now() < until:
                step = next(work.steps, None)
                if step is None:
                    return ObservedPublication(missing=True)
                work.last = step
                if step.published is not None:
                    record_published(store, work.request, step.published)
                    log.info("cache_published", build=work.keys.prefix, digest=work.request.digest)
                    return ObservedPublication(done=True)
        except CacheDamaged as damage:
            work.steps = None
            log.warning("cache_damaged", build=work.keys.prefix, reason=damage.reason, error=str(damage))
            return ObservedPublication(reason=damage.reason, damaged=str(damage))
        except CacheRefused as refusal:
            log.warning("cache_refused", build=work.keys.prefix, reason=refusal.reason, error=str(refusal))
            return ObservedPublication(reason=refusal.reason, refused=str(refusal))
        except StoreError as error:
            work.steps = None  # from the start: what is there is found
            if isinstance(error, StoreDenied):
                self._stores.pop(work.profile.name, None)  # a key or a `ca.crt` may have been mounted since
            log.warning("cache_not_published_for_now", build=work.keys.prefix, error=str(error))
            return replace(work.seen, error=explain_store_error(error))
        assert work.last is not None
        return ObservedPublication(work.last.objects, work.last.objects_total, work.last.size_bytes)

    def _store(self, profile: StorageProfile) -> ObjectStore:
        if profile.name not in self._stores:
            self._stores[profile.name] = self.open_store(profile)
        return self._stores[profile.name]


def check(store: ObjectStore, request: PublishRequest, manifest: CacheManifest) -> None:
    """Raises CacheRefused unless a manifest answers the spec and is of the source as it lies in the store now."""
    if mismatch := find_mismatch(request, manifest):
        raise CacheRefused("SpecMismatch", mismatch)
    if not request.source_prefix:
        return
    listing = list_source(store, request.source_prefix)
    if listing is not None and (mismatch := source_mismatch(manifest, listing.sha256, listing.files)):
        raise CacheRefused(SOURCE_CHANGED, mismatch)


def record_published(store: ObjectStore, request: PublishRequest, published: PublishedManifest) -> None:
    """Records which cache a resource was published as: only from here on it may become Ready."""
    record = PublishedCache(digest=published.manifest.digest, manifest_sha256=published.sha256)
    key = BuildKeys(request.namespace, request.uid).control.published(request.generation)
    store.put(key, record.model_dump_json().encode())
