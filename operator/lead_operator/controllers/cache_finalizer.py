"""The passes over a DatasetCache that was deleted and takes its data with it, until nothing of it is left.

Called by `controllers.dataset_cache` instead of a usual pass. Who uses the data is asked of the copies and of the
bucket's own records of what this cache came to, so that a run that trains from an earlier build counts too. The
records are read once, when all its pods have ended: nobody writes another then.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from lead_operator import names
from lead_operator.bucket.cache_data_gc import CacheDataGC
from lead_operator.bucket.store_errors import explain_store_error
from lead_operator.controllers.apply import Applier
from lead_operator.decisions.dataset_cache.plan import decide_cache_removal
from lead_operator.decisions.observed import ObservedBuild, ObservedPod
from lead_operator.decisions.plan import EventNote
from lead_operator.kube.api_errors import AlreadyExists, Refused
from lead_operator.kube.client import KubeClient
from lead_operator.kube.copies import has_ended, is_finished, trim_pod
from lead_operator.kube.event_recorder import build_event
from lead_operator.kube.informers import Informers
from lead_operator.kube.kinds import DATASET_CACHE, POD, TRAINING_RUN
from lead_operator.kube.observe import observe_pods
from lead_operator.memory import Memories, Part
from lead_operator.near_names import explain_unknown_profile
from lead_operator.resources.body import Identity
from lead_operator.resources.dataset_cache import DatasetCache
from lead_operator.resources.dataset_cache_status import DatasetCacheStatus
from lead_operator.resources.status_format import parse_status
from lead_operator.resources.stored import Stored, read_stored
from lead_operator.resources.training_run_status import TrainingRunStatus
from lead_operator.settings import Settings, StorageProfile
from lead_protocol.object_keys import BuildKeys, CacheKeys
from lead_protocol.store.object_store import StoreDenied, StoreError

AFTER_PORTION_S = 0.1
_GOES = "because it is being terminated"  # as the API server refuses new content of a namespace

log = structlog.get_logger(__name__)


@dataclass
class _Removal(Part):
    """What is kept of the removal of one cache's data."""

    listed: bool = False  # its pods were read live
    own: set[str] | None = None  # what its builds came to; of ended pods alone
    error: str = ""  # why the store did not give up its data


@dataclass
class CacheFinalizer:
    """What such a pass needs."""

    client: KubeClient
    informers: Informers
    removal: CacheDataGC
    applier: Applier
    settings: Settings
    memories: Memories = field(default_factory=Memories)
    leaving: set[asyncio.Task[None]] = field(default_factory=set)  # removals for caches that were let go

    async def step(self, cache: DatasetCache, stored: Stored) -> float | None:
        """Makes one step; returns in how many seconds to continue, None when the cache may be deleted."""
        identity, profile = cache.identity, self.settings.storage_profiles.get(cache.storage_profile)
        if cache.retain != "Delete":  # retain was changed back to Retain
            await self._let_go(cache)
            return None
        keys, previous = BuildKeys(identity.namespace, identity.uid), parse_status(DatasetCacheStatus, stored.status)
        if await self._namespace_goes(identity):
            await self._leave(cache, profile, keys, previous)
            return None
        removal = self.memories.of(identity.uid, _Removal)
        if not removal.listed:
            await self._read_pods_live(identity.namespace, identity.uid)
        now, known = self.client.clock.now(), self.settings.storage_profiles
        copies = self.informers.of(POD, identity.namespace).owned_by(identity.namespace, identity.uid)
        pods = observe_pods(copies, self.informers.nodes, now)
        if profile is None and not _was_begun(previous, pods):
            await self._let_go(cache)
            return None
        ended = all(pod.terminal for pod in pods)
        unseen = self.informers.not_seen
        if not ended:
            removal.own = None  # the copies had not shown them all
        is_known = ended and not unseen and await self._reads_own(cache, profile, keys, removal)
        own = (removal.own or set()) | {previous.digest}
        users, kept = users_of_data(cache, own, self.informers)
        observed = ObservedBuild(
            now=now,
            pods=pods,
            store_error=removal.error,
            profile_error="" if profile else explain_unknown_profile(cache.storage_profile, known),
            previous=stored.status,
        )
        plan = decide_cache_removal(cache, observed, users, unseen)
        again_s = await self.applier.apply(DATASET_CACHE, stored, plan)
        if ended and (users or profile is None):  # the end of a run is an event, a new profile a new process
            return self.settings.resync_s
        if users or not is_known or profile is None or removal.own is None:
            return again_s
        try:
            over = await self.removal.remove(profile, keys, removal.own - kept)
        except StoreError as found:
            removal.error = _explain(cache, found)
            return again_s
        removal.error = ""
        if not over:
            return AFTER_PORTION_S
        await self._let_go(cache)
        return None

    async def _namespace_goes(self, identity: Identity) -> bool:
        """Asks whether the namespace of a cache is being deleted; the operator may not read namespaces."""
        event = build_event(identity, EventNote("Normal", "Deleting", "removes its data"), self.client.clock.now())
        try:
            await self.client.would_create(event)
        except AlreadyExists:
            return False
        except Refused as error:
            return _GOES in error.message
        return False

    async def _leave(
        self, cache: DatasetCache, profile: StorageProfile | None, keys: BuildKeys, status: DatasetCacheStatus
    ) -> None:
        """Lets a cache go at once whose namespace is being deleted, and removes its data afterwards, if it can."""
        uid, namespace = cache.identity.uid, cache.identity.namespace
        _, kept = users_of_data(cache, set(), self.informers)
        pods = self.informers.of(POD, namespace).owned_by(namespace, uid)
        ended = all(has_ended(pod) for pod in pods)
        await self._let_go(cache)
        places = [keys.prefix, keys.control.prefix]
        if digest := status.digest:
            places.append(CacheKeys(namespace, digest).prefix)
        log.warning("namespace_goes", resource=str(cache.identity), profile=cache.storage_profile, data=places)
        if profile is not None and ended:
            task = asyncio.create_task(self._remove_afterwards(profile, keys, kept, places), name=f"removal {uid}")
            self.leaving.add(task)
            task.add_done_callback(self.leaving.discard)

    async def _remove_afterwards(
        self, profile: StorageProfile, keys: BuildKeys, kept: frozenset[str], places: list[str]
    ) -> None:
        try:
            doomed = await self.removal.digests(profile, keys) - kept
            while not await self.removal.remove(profile, keys, doomed):
                await asyncio.sleep(AFTER_PORTION_S)
        except StoreError as error:
            log.warning("cache_data_left", profile=profile.name, data=places, error=str(error))

    async def _reads_own(
        self, cache: DatasetCache, profile: StorageProfile | None, keys: BuildKeys, removal: _Removal
    ) -> bool:
        if removal.own is not None:
            return True
        if profile is None:
            return False
        try:
            removal.own = await self.removal.digests(profile, keys)
        except StoreError as error:
            removal.error = _explain(cache, error)
            return False
        removal.error = ""
        return True

    async def _read_pods_live(self, namespace: str, uid: str) -> None:
        """Takes over pods of a build that the copies have not seen yet: one that writes must not be overlooked."""
        selector = f"{names.Label.OWNER_UID}={uid}"
        found, _ = await self.client.list(POD, namespace, trim=trim_pod, selector=selector)
        for pod in found:
            self.informers.of(POD, namespace).note_own_write(pod)
        self.memories.of(uid, _Removal).listed = True

    async def _let_go(self, cache: DatasetCache) -> None:
        identity = cache.identity
        current = self.informers.of(DATASET_CACHE, identity.namespace).get(identity.namespace, identity.name)
        if current is not None and current["metadata"]["uid"] == identity.uid:
            await self.applier.set_finalizer(DATASET_CACHE, read_stored(current, DATASET_CACHE.kind), False)
        self.memories.drop(identity.uid, _Removal)


def _explain(cache: DatasetCache, error: StoreError) -> str:
    key = f"the operator's key of storage profile {cache.storage_profile}"
    remedy = f"; let {key} list and delete below caches/ and builds/" if isinstance(error, StoreDenied) else ""
    log.warning("cache_data_stay_for_now", resource=str(cache.identity), error=str(error))
    return f"{explain_store_error(error)}{remedy}"


def _was_begun(status: DatasetCacheStatus, pods: Sequence[ObservedPod]) -> bool:
    """Returns whether builds of a cache may have left data; a status of a later spec may not contain the first one."""
    claimed = status.build is not None and any(worker.attempt for worker in status.build.workers)
    return bool(pods or claimed or status.digest or status.observed_generation != 1)


def users_of_data(cache: DatasetCache, own: set[str], informers: Informers) -> tuple[list[str], frozenset[str]]:
    """Returns who keeps data of a cache from being removed, and every digest of its namespace in use.

    `own`: the digests that any build of the cache came to.
    """
    digests: dict[str, set[str]] = {}
    for other in informers.all(DATASET_CACHE):
        metadata = other["metadata"]
        goes_too = "deletionTimestamp" in metadata and other["spec"].get("retain") == "Delete"
        other_one = metadata["namespace"] == cache.identity.namespace and metadata["uid"] != cache.identity.uid
        if other_one and not goes_too:
            digests[f"DatasetCache {metadata['namespace']}/{metadata['name']}"] = {
                parse_status(DatasetCacheStatus, other.get("status")).digest
            }
    for run in informers.all(TRAINING_RUN):
        if run["metadata"]["namespace"] == cache.identity.namespace and not is_finished(run):
            pinned = {entry.digest for entry in parse_status(TrainingRunStatus, run.get("status")).datasets}
            digests[f"TrainingRun {run['metadata']['namespace']}/{run['metadata']['name']}"] = pinned
    users = sorted(name for name, used in digests.items() if (own & used) - {""})
    return users, frozenset().union(*digests.values())
