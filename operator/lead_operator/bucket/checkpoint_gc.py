"""Removes checkpoints that their policy lets go, with the operator's own credential: a pod's may not delete.

`controllers.training_run` asks after each pass with what the last LIST showed; nothing new means no call at all. The
work is done in threads of its own, in small portions, so that no pass ever waits for it. A store that fails is logged
once and asked again later. What a killed operator left half done is found as orphaned data at the stage's end.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

import structlog
from pydantic import ValidationError

from lead_operator.bucket.store_threads import StoreThreads
from lead_operator.decisions.observed import ObservedRun
from lead_operator.decisions.training_run.retention import (
    Removal,
    decide_removals,
    find_orphans,
    outlived,
    remove_corrupt,
)
from lead_operator.memory import Memories, Part
from lead_operator.names import RunPhase
from lead_operator.resources.training_run import TrainingRun
from lead_operator.resources.training_run_status import TrainingRunStatus
from lead_operator.settings import StorageProfile
from lead_protocol.checkpoint_retention import FEWEST_CHECKPOINTS
from lead_protocol.manifests import MAX_CHECKPOINT_MANIFEST_BYTES, CheckpointManifest, parse_checkpoint_manifest
from lead_protocol.object_keys import InstanceKeys, position_of
from lead_protocol.store.object_store import ObjectCorrupt, ObjectNotFound, ObjectStore, StoreDenied, StoreError

THREADS = 2  # of each profile; namespaces take turns
MAX_READ_BYTES = 1024 * 1024  # of manifests, newest first; parsed, they may take six times as much
MAX_KEPT_BYTES = 128 * 1024  # of an instance's manifests between portions: with more, they are read again
MAX_REMOVALS = 16  # checkpoints of one portion
MAX_ORPHANS = 128  # objects of one portion
MAX_LISTED = 20_000  # of one instance; beyond it orphans cannot be determined
PAUSE_S = 0.2  # between two portions
RETRY_S = 30.0  # after the store failed

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class GCRequest:
    """What is known of one stage instance when it is asked for; an equal one means that nothing has changed."""

    profile: StorageProfile
    keys: InstanceKeys
    manifests: tuple[str, ...]  # keys as last listed, without quarantined ones
    keep_last: int
    keep_best: int
    live_attempt: int
    done: bool
    keep_every_epochs: int = 0
    quarantined: tuple[str, ...] = ()  # manifest keys found corrupt

    @property
    def useless(self) -> tuple[str, ...]:
        """The corrupt checkpoints that enough newer ones have replaced."""
        return outlived(self.quarantined, self.manifests, self.keep_last)

    @property
    def idle(self) -> bool:
        """Whether there is surely nothing to remove."""
        few = len(self.manifests) <= max(self.keep_last, FEWEST_CHECKPOINTS)
        return few and not self.useless and (not self.done or self.live_attempt == 0)


def sweep_requests(
    run: TrainingRun, observed: ObservedRun, status: TrainingRunStatus, profile: StorageProfile
) -> Iterator[GCRequest]:
    """Yields what to ask for after a pass that found the bucket readable and came to `status`."""
    ended = status.phase in (RunPhase.SUCCEEDED, RunPhase.FAILED)
    for found in observed.instances:
        entry = status.instance(found.stage, found.seed)
        yield GCRequest(
            profile,
            InstanceKeys(run.identity.namespace, run.identity.uid, found.stage, found.seed),
            found.manifests,
            keep_last=run.checkpoint.keep_last,
            keep_best=run.checkpoint.keep_best,
            live_attempt=entry.attempt if entry else 0,
            done=ended or (entry is not None and entry.phase == "Succeeded"),
            keep_every_epochs=run.checkpoint.keep_every_epochs,
            quarantined=found.quarantined,
        )


@dataclass(frozen=True)
class ReadManifest:
    """What came of reading one manifest."""

    size_bytes: int
    manifest: CheckpointManifest | None  # None: it does not parse


@dataclass
class GCMemory:
    """What is kept of one stage instance between portions."""

    asked: GCRequest | None = None
    answered: GCRequest | None = None
    task: "asyncio.Task[None] | None" = None
    logged: bool = False  # of the store's failure
    read: dict[str, "ReadManifest"] = field(default_factory=dict)
    owed: dict[str, Removal] = field(default_factory=dict)  # begun, not known to be finished
    removed: set[str] = field(default_factory=set)  # manifests that an older LIST still shows

    def standing(self, request: GCRequest) -> GCRequest:
        """Returns a request without the manifests that are gone since its LIST."""
        manifests = tuple(key for key in request.manifests if key not in self.removed)
        quarantined = tuple(key for key in request.quarantined if key not in self.removed)
        return replace(request, manifests=manifests, quarantined=quarantined)


@dataclass
class _GCMemories(Part):
    """What is kept of a run's stage instances."""

    by_instance: dict[InstanceKeys, GCMemory] = field(default_factory=dict)

    def close(self) -> None:
        """Ends what is being swept; the next operator goes on where it stopped."""
        for memory in self.by_instance.values():
            if memory.task is not None:
                memory.task.cancel()


class CheckpointGC:
    """Retention of all stage instances at hand; used from the event loop only."""

    def __init__(self, store_of: Callable[[StorageProfile], ObjectStore], memories: Memories | None = None) -> None:
        self._store_of = store_of
        self._memories = memories or Memories()
        self._threads = StoreThreads(THREADS, "retention")

    def ask(self, request: GCRequest) -> None:
        """Has an instance swept soon, unless nothing has changed since the last time; returns at once."""
        memory = self._memories.of(request.keys.uid, _GCMemories).by_instance.setdefault(request.keys, GCMemory())
        if memory.task is None:
            memory.removed &= {*request.manifests, *request.quarantined}
        memory.asked = request
        request = memory.standing(request)
        if request.idle and not memory.owed:
            memory.answered = request
        if memory.answered != request and memory.task is None:
            memory.task = asyncio.get_running_loop().create_task(self._work(memory), name=f"sweep {request.keys}")

    def close(self) -> None:
        """Starts no more; the memory of each run ends its own."""
        self._threads.close()

    async def settle(self) -> None:
        """Returns when nothing that was asked for is left to do."""
        while tasks := [
            memory.task
            for sweeps in self._memories.all(_GCMemories)
            for memory in sweeps.by_instance.values()
            if memory.task is not None
        ]:
            await asyncio.wait(tasks)

    async def _work(self, memory: GCMemory) -> None:
        try:
            while memory.asked is not None and (request := memory.standing(memory.asked)) != memory.answered:
                await self._portion(request, memory)
        except Exception:
            log.exception("retention_broke", instance=memory.asked and memory.asked.keys.prefix)
            memory.answered = memory.asked and memory.standing(memory.asked)  # the next checkpoint asks again
        finally:
            memory.task = None

    async def _portion(self, request: GCRequest, memory: GCMemory) -> None:
        try:
            store, namespace = self._store_of(request.profile), request.keys.namespace
            complete = await self._threads.run(
                request.profile.name, namespace, sweep_and_forget, store, request, memory
            )
        except StoreError as error:
            if not memory.logged:
                memory.logged = True
                log.warning("old_checkpoints_stay_for_now", instance=request.keys.prefix, error=str(error))
            if isinstance(error, StoreDenied):
                memory.answered = request  # a person must act; the next checkpoint tries again
            else:
                await asyncio.sleep(RETRY_S)
            return
        memory.logged = False
        if complete:
            memory.answered = memory.standing(request)
        else:
            await asyncio.sleep(PAUSE_S)


def sweep_and_forget(store: ObjectStore, request: GCRequest, memory: GCMemory) -> bool:
    """Makes a portion and drops what it read where that is much; returns whether nothing is left to do."""
    try:
        return sweep_portion(store, request, memory)
    finally:  # what pods may write for every run is in memory for as many runs as there are threads
        if sum(read.size_bytes for read in memory.read.values()) > MAX_KEPT_BYTES:
            memory.read = {}


def sweep_portion(store: ObjectStore, request: GCRequest, memory: GCMemory) -> bool:
    """Reads manifests of a bounded size and removes a bounded number of objects; returns whether nothing is left to do.

    Older manifests than those that are read stay: more than any run has were written to be large.
    """
    for removal in list(memory.owed.values()):
        _remove(store, removal, memory)
    memory.read, _ = _read_newest(store, memory.standing(request).manifests, memory.read)
    read = _parsed(memory.read)
    removals = decide_removals(
        request.keys,
        read,
        keep_last=request.keep_last,
        keep_best=request.keep_best,
        live_attempt=request.live_attempt,
        keep_every_epochs=request.keep_every_epochs,
    )
    removals += _corrupt(store, memory.standing(request), read.values())
    for removal in removals[:MAX_REMOVALS]:
        _remove(store, removal, memory)
    if removals:
        steps = [removal.manifest_key.rsplit("/", 1)[1].split(".")[0].lstrip("0") for removal in removals]
        log.info("checkpoints_removed", instance=request.keys.prefix, steps=steps[:MAX_REMOVALS])
    if len(removals) > MAX_REMOVALS:
        return False
    return not request.done or _remove_orphans(store, request, memory)


def _remove(store: ObjectStore, removal: Removal, memory: GCMemory) -> None:
    memory.owed[removal.manifest_key] = removal  # from here on its data must go, whatever the next LIST shows
    store.delete(removal.manifest_key)
    memory.removed.add(removal.manifest_key)
    for key in (*removal.data_keys, *filter(None, [removal.record_key])):
        store.delete(key)
    del memory.owed[removal.manifest_key]


def _corrupt(
    store: ObjectStore, request: GCRequest, valid: Collection[CheckpointManifest]
) -> tuple[Removal, ...]:  # fmt: skip
    keys = request.useless[:MAX_REMOVALS]
    return tuple(remove_corrupt(request.keys, key, read_if_valid(store, key), valid) for key in keys)


def _read_newest(
    store: ObjectStore, manifest_keys: Iterable[str], known: Mapping[str, ReadManifest]
) -> tuple[dict[str, ReadManifest], bool]:
    """Returns the newest manifests up to MAX_READ_BYTES, and whether these are all of them."""
    read, size_bytes = dict[str, ReadManifest](), 0
    for key in sorted(manifest_keys, key=lambda key: position_of(key) or (-1, -1), reverse=True):
        if size_bytes > MAX_READ_BYTES:
            return read, False
        read[key] = known.get(key) or _read(store, key)
        size_bytes += read[key].size_bytes
    return read, True


def _parsed(read: Mapping[str, ReadManifest]) -> dict[str, CheckpointManifest]:
    return {key: found.manifest for key, found in read.items() if found.manifest is not None}


def _read(store: ObjectStore, key: str) -> ReadManifest:
    data = b""
    try:
        data = store.get(key, max_bytes=MAX_CHECKPOINT_MANIFEST_BYTES)
        return ReadManifest(len(data), parse_checkpoint_manifest(data))
    except (ObjectNotFound, ObjectCorrupt, ValidationError):
        return ReadManifest(len(data), None)


def read_if_valid(store: ObjectStore, key: str) -> CheckpointManifest | None:
    """Returns a manifest; None for one deleted since the LIST, and for an invalid one, whatever its name."""
    return _read(store, key).manifest


def _remove_orphans(store: ObjectStore, request: GCRequest, memory: GCMemory) -> bool:
    """Removes data that no manifest names; returns whether none is left. One manifest unread: unknown."""
    keys = request.keys
    data = [info.key for info in islice(store.list(keys.checkpoints_prefix), MAX_LISTED)]
    listed = [info.key for info in islice(store.list(keys.manifests_prefix), MAX_LISTED)]  # after the data: none missed
    if not data or max(len(data), len(listed)) == MAX_LISTED:
        return True
    memory.read, complete = _read_newest(store, listed, memory.read)
    manifests = _parsed(memory.read)
    if not complete or len(manifests) < len(listed):
        return True
    orphans = find_orphans(keys, manifests, data, live_attempt=request.live_attempt)
    for key in orphans[:MAX_ORPHANS]:
        store.delete(key)
    if orphans:
        log.info("orphaned_data_removed", instance=keys.prefix, objects=len(orphans[:MAX_ORPHANS]))
    return len(orphans) <= MAX_ORPHANS
