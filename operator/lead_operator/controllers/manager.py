"""The operator process: watches, workers, lease and watchdog, started together and ended together.

Started by `handlers.startup`. Whatever of it ends, the process ends: kubelet starts a new one, and nothing was kept
in memory that the cluster and the bucket do not hold.
"""

import asyncio
import contextlib
import ctypes
import os
import socket
import uuid

import structlog

from lead_operator import metrics
from lead_operator.bucket.bucket_view import BucketView, OpenStore
from lead_operator.bucket.cache_data_gc import CacheDataGC
from lead_operator.bucket.cache_publisher import LIMITS as PUBLICATION_LIMITS
from lead_operator.bucket.cache_publisher import CachePublisher
from lead_operator.bucket.checkpoint_gc import CheckpointGC
from lead_operator.bucket.closed_loop_gc import ClosedLoopGC
from lead_operator.bucket.profile_store import open_profile_store
from lead_operator.bucket.source_watch import SourceWatch
from lead_operator.controllers.apply import Applier
from lead_operator.controllers.cache_finalizer import CacheFinalizer
from lead_operator.controllers.dataset_cache import DatasetCacheController
from lead_operator.controllers.metrics_snapshot import read_snapshot
from lead_operator.controllers.reconciler import Reconciler
from lead_operator.controllers.reported_caches import ReportedCaches
from lead_operator.controllers.reported_runs import ReportedRuns
from lead_operator.controllers.training_run import TrainingRunController
from lead_operator.controllers.workers import Workers
from lead_operator.kube.client import KubeClient
from lead_operator.kube.event_recorder import EventRecorder
from lead_operator.kube.informers import Informers
from lead_operator.kube.kinds import DATASET_CACHE, TRAINING_RUN, ResourceKey
from lead_operator.kube.lease import Lease
from lead_operator.kube.watchdog import Watchdog
from lead_operator.kube.work_queue import WorkQueue
from lead_operator.memory import Memories
from lead_operator.run_metrics import RUNS
from lead_operator.settings import Settings

RESYNC_ROUNDS = 2  # in which resources with a recent pass are left out
GATHER_S = 0.1  # in which events that need no answer at once wait for each other

log = structlog.get_logger(__name__)


class Manager:
    """One operator process against one cluster."""

    def __init__(self, client: KubeClient, settings: Settings, open_profile: OpenStore | None = None) -> None:
        self.queue: WorkQueue[ResourceKey] = WorkQueue(lambda key: key.namespace, settings.workers)
        self._settings = settings
        self._client = client
        self.informers = Informers(client, settings.run_namespaces, settings, self.queue.add, self._request_pass)
        self._memories = Memories()
        self._recorder = EventRecorder(client, self._memories)
        self._bucket = BucketView(settings, open_profile, self._memories)
        self._sweep = CheckpointGC(self._bucket.store, self._memories)
        self._results = ClosedLoopGC(self._bucket.store, self._memories)
        self._removal = CacheDataGC(self._bucket.store, self._bucket.forget_store)
        self._sources = SourceWatch(self._bucket.store, settings.source_check_s, self._memories)
        open_store = open_profile or (lambda profile: open_profile_store(profile, settings, PUBLICATION_LIMITS))
        self._publisher = CachePublisher(open_store, self._bucket.expire, self._memories)
        applier = Applier(client, self._recorder, self.informers, self._memories)
        published = ReportedCaches(self._memories)
        self.runs = TrainingRunController(
            client=client,
            informers=self.informers,
            bucket=self._bucket,
            sweep=self._sweep,
            results=self._results,
            reported=ReportedRuns(self._bucket, self._memories),
            caches=published,
            memories=self._memories,
            settings=settings,
        )
        self.caches = DatasetCacheController(
            client=client,
            informers=self.informers,
            bucket=self._bucket,
            sources=self._sources,
            publisher=self._publisher,
            end=CacheFinalizer(client, self.informers, self._removal, applier, settings, self._memories),
            reported=published,
            memories=self._memories,
            settings=settings,
        )
        self._reconciler = Reconciler(
            client=client,
            informers=self.informers,
            controllers={each.kind.kind: each for each in (self.runs, self.caches)},
            applier=applier,
            recorder=self._recorder,
            settings=settings,
            memories=self._memories,
        )
        self._workers = Workers(self.queue, self._reconciler.reconcile)
        self.watchdog = Watchdog(lambda: self.informers.awaited, lambda: self._workers.oldest_pass_s)
        self._lease = Lease(client, settings.release_namespace, settings.lease_name, _identity())

    async def run(self) -> None:
        """Works until cancelled, or until one part ends: then everything ends with that part's error."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self.informers.start(tasks)
                tasks.create_task(self.watchdog.run(), name="watchdog")
                await self.informers.synced()
                log.info("informers_synced", resources=sum(1 for _ in self.informers.resources()))
                await self._lease.acquire()
                tasks.create_task(self._lease.keep(), name="lease")
                tasks.create_task(self._recorder.run(), name="events")
                tasks.create_task(self._resync(), name="resync")
                self._workers.start(tasks)
        finally:
            self._memories.close()
            self._sweep.close()
            self._results.close()
            self._sources.close()
            self._publisher.close()
            self._removal.close()
            self._bucket.close()
            await asyncio.shield(self._lease.release())

    def refresh_metrics(self) -> None:
        """Reads what the copies hold for the metrics; called when the page is asked for."""
        found = read_snapshot(self.informers, self._memories, self._client.clock.now())
        metrics.RESOURCES.clear()
        for kind, entries in ((TRAINING_RUN, found.runs), (DATASET_CACHE, found.caches)):
            for *_, phase in entries:
                metrics.RESOURCES.labels(kind.kind, phase).inc()
        for namespace in self._settings.run_namespaces:
            metrics.SERVED.labels(namespace or "*").set(self.informers.serves(namespace))
        metrics.QUEUE_AGE.set(self.queue.oldest_s())
        RUNS.snapshot = found

    def _request_pass(self, key: ResourceKey) -> None:
        self.queue.add_after(key, GATHER_S)  # behind all that cannot wait

    async def _resync(self) -> None:
        while True:
            keys = list(self.informers.resources())
            for position, key in enumerate(keys):  # spread over the interval: a thousand at once would be a burst
                if self.queue.due_in_s(key) > RESYNC_ROUNDS * self._settings.resync_s:
                    self.queue.add_after(key, self._settings.resync_s * position / len(keys))
            await asyncio.sleep(self._settings.resync_s)
            _give_memory_back()


def _give_memory_back() -> None:
    # glibc keeps what lists of everything and bursts of answers took, several times what the copies need.
    with contextlib.suppress(OSError, AttributeError):  # another libc
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _identity() -> str:
    # In a pod HOSTNAME is the pod's name: a container that was restarted in it need not wait out its own lease.
    return os.environ.get("HOSTNAME") or f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
