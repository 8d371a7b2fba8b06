"""Removes results of driving beyond `closedLoop.keep`, with the operator's own credential: a pod's may not delete.

`controllers.training_run` asks when an attempt has ended; nothing new means no call at all. Manifests go before the
files they commit, so that one that stands always has its files; what failed attempts have left goes with them. The
newest attempt is left alone, because its pod may still write. A store that fails is asked again later. All instances
that were asked for are swept one after another, also where no further pass follows, because the run has ended.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import structlog

from lead_operator.bucket.store_threads import StoreThreads
from lead_operator.decisions.observed import ObservedRun
from lead_operator.decisions.training_run.driven_results import kept_attempts
from lead_operator.memory import Memories, Part
from lead_operator.resources.closed_loop_status import DRIVING
from lead_operator.resources.training_run import TrainingRun
from lead_operator.resources.training_run_status import TrainingRunStatus
from lead_operator.settings import StorageProfile
from lead_protocol.object_keys import ClosedLoopKeys
from lead_protocol.store.object_store import ObjectStore, StoreDenied, StoreError

THREADS = 1  # of each profile; namespaces take turns
MAX_LISTED = 50_000  # objects of one stage instance
PORTION = 500  # objects of one turn
RETRY_S = 60.0  # after the store failed
_MANIFEST = re.compile(r"manifest/(\d{6,9})\.json")
_FILE = re.compile(r"\d{4,9}/(\d{6,9})/.+")

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ResultsRequest:
    """Which results of one stage instance stay; an equal one means that nothing has changed."""

    profile: StorageProfile
    keys: ClosedLoopKeys
    kept: tuple[int, ...]  # attempts
    newest: int  # attempt of the run: it and later ones stay


def results_requests(
    run: TrainingRun, observed: ObservedRun, status: TrainingRunStatus, profile: StorageProfile
) -> Iterator[ResultsRequest]:
    """Yields what to ask for after a pass that has read the results and came to `status`."""
    wanted, loop = run.closed_loop, status.closed_loop
    drive = loop.drive if loop else None
    if wanted is None or loop is None or drive is None or drive.phase == DRIVING or not observed.drives_read:
        return
    for entry in loop.driven:
        own = [each for each in observed.drives if (each.stage, each.seed) == (entry.stage, entry.seed)]
        keys = ClosedLoopKeys(run.identity.namespace, run.identity.uid, entry.stage, entry.seed)
        yield ResultsRequest(profile, keys, kept_attempts(own, wanted), drive.attempt)


@dataclass
class _Asked(Part):
    """What is kept of a run."""

    wanted: dict[ClosedLoopKeys, ResultsRequest] = field(default_factory=dict)
    answered: dict[ClosedLoopKeys, ResultsRequest] = field(default_factory=dict)
    task: "asyncio.Task[None] | None" = None

    @property
    def open(self) -> ResultsRequest | None:
        """The next request that was not carried out."""
        return next((each for keys, each in self.wanted.items() if self.answered.get(keys) != each), None)

    def close(self) -> None:
        """Ends what is being removed; the next operator goes on where it stopped."""
        if self.task is not None:
            self.task.cancel()


class ClosedLoopGC:
    """Retention of the results of all runs at hand; used from the event loop only."""

    def __init__(self, store_of: Callable[[StorageProfile], ObjectStore], memories: Memories) -> None:
        self._store_of = store_of
        self._memories = memories
        self._threads = StoreThreads(THREADS, "results")

    def ask(self, uid: str, requests: Iterable[ResultsRequest]) -> None:
        """Has what does not stay of a run removed soon, unless nothing has changed since the last time."""
        asked = self._memories.of(uid, _Asked)
        asked.wanted.update({request.keys: request for request in requests})
        if asked.task is None and asked.open is not None:
            asked.task = asyncio.get_running_loop().create_task(self._work(asked), name=f"results {uid}")

    def was_asked(self, uid: str) -> bool:
        """Returns whether this process has seen the results of a run; the one before may have died over them."""
        return self._memories.find(uid, _Asked) is not None

    def close(self) -> None:
        """Starts no more; the memory of each run ends its own."""
        self._threads.close()

    async def _work(self, asked: _Asked) -> None:
        try:
            while (request := asked.open) is not None:
                await self._sweep(request, asked)
        finally:
            asked.task = None

    async def _sweep(self, request: ResultsRequest, asked: _Asked) -> None:
        try:
            store, where = self._store_of(request.profile), (request.profile.name, request.keys.namespace)
            while not await self._threads.run(*where, remove_portion, store, request):
                pass
            asked.answered[request.keys] = request
        except StoreError as error:
            log.warning("old_results_stay_for_now", instance=request.keys.prefix, error=str(error))
            if isinstance(error, StoreDenied):
                asked.answered[request.keys] = request  # a person must act; the next result tries again
            else:
                await asyncio.sleep(RETRY_S)


def remove_portion(store: ObjectStore, request: ResultsRequest) -> bool:
    """Removes a bounded number of objects, manifests first; returns whether nothing is left to do."""
    listed = [info.key for info in islice(store.list(request.keys.prefix), MAX_LISTED)]
    doomed = [key for key in listed if _goes(key, request)]
    doomed.sort(key=lambda key: not key.startswith(request.keys.manifests_prefix))
    for key in doomed[:PORTION]:
        store.delete(key)
    if doomed:
        log.info("results_removed", instance=request.keys.prefix, objects=len(doomed[:PORTION]))
    return len(doomed) <= PORTION


def _goes(key: str, request: ResultsRequest) -> bool:
    name = key.removeprefix(request.keys.prefix)
    match = _MANIFEST.fullmatch(name) or _FILE.fullmatch(name)
    attempt = int(match[1]) if match else request.newest  # what pods did not write as results is left to people
    return attempt < request.newest and attempt not in request.kept
