"""A DatasetCache's part of a pass: what is observed, what is recorded before its status reports it, what is requested.

Run by `controllers.reconciler`; `controllers.training_run` has the same methods in the same order.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lead_operator import names
from lead_operator.bucket.bucket_snapshot import BucketSnapshot
from lead_operator.bucket.bucket_view import BucketView
from lead_operator.bucket.cache_publisher import CachePublisher
from lead_operator.bucket.source_watch import SourceWatch
from lead_operator.controllers.cache_finalizer import CacheFinalizer
from lead_operator.controllers.controller import live_uids, refusal_of, snapshot_age_s
from lead_operator.controllers.reported_caches import ReportedCaches
from lead_operator.decisions.dataset_cache.plan import decide_dataset_cache
from lead_operator.decisions.dataset_cache.rebuild import begins_again_by_itself, listed_every_s
from lead_operator.decisions.dataset_cache.state import build_generation
from lead_operator.decisions.dataset_cache.status import NOT_ENDED
from lead_operator.decisions.missed_events import Missed, missed_cache_events
from lead_operator.decisions.observed import ObservedBuild, ObservedSource
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.remedies import unknown_profile
from lead_operator.kube.client import KubeClient
from lead_operator.kube.informers import Informers
from lead_operator.kube.kinds import CLAIM, DATASET_CACHE, POD, KubernetesObject
from lead_operator.kube.observe import expected_build_pods, observe_pods, source_claim_owner
from lead_operator.memory import Memories
from lead_operator.names import CachePhase
from lead_operator.resources.dataset_cache import DatasetCache, parse_dataset_cache
from lead_operator.resources.dataset_cache_status import DatasetCacheStatus
from lead_operator.resources.status_format import parse_status
from lead_operator.resources.stored import Stored
from lead_operator.settings import Settings, StorageProfile


@dataclass
class DatasetCacheController:
    """What such a part needs."""

    client: KubeClient
    informers: Informers
    bucket: BucketView
    sources: SourceWatch
    publisher: CachePublisher
    end: CacheFinalizer
    reported: ReportedCaches
    memories: Memories
    settings: Settings

    kind = DATASET_CACHE
    status = DatasetCacheStatus
    not_ended = NOT_ENDED
    finalizer = names.CACHE_DATA_FINALIZER

    def parse(self, body: KubernetesObject) -> DatasetCache:
        """Returns a body as its spec reads; raises SpecError."""
        return parse_dataset_cache(body)

    def rests_for_s(self, cache: DatasetCache, stored: Stored) -> float | None:
        """A cache is read at once: runs may train from it when its manifest was."""
        return None

    def expected_pods(self, cache: DatasetCache, status: DatasetCacheStatus, *, ended: bool = False) -> Iterator[str]:
        """Yields the names of the pods that were there, by status, and whose end is not accounted for."""
        return expected_build_pods(cache, status, ended=ended)

    async def observe(self, cache: DatasetCache, stored: Stored, *, young: bool = False) -> ObservedBuild:
        """Returns what copies and bucket hold of a build now."""
        now, namespace, uid = self.client.clock.now(), cache.identity.namespace, cache.identity.uid
        pods = observe_pods(self.informers.of(POD, namespace).owned_by(namespace, uid), self.informers.nodes, now)
        held = parse_status(DatasetCacheStatus, stored.status)
        profile = self.settings.storage_profiles.get(cache.storage_profile)
        snapshot = BucketSnapshot()
        if profile is not None:
            snapshot = await self.bucket.read_build(
                profile, namespace, uid, build_generation(cache, held),
                shares=cache.parallelism, now=now, live=live_uids(pods), max_age_s=snapshot_age_s(pods, self.settings),
                stages=[(stage.name, stage.workers) for stage in cache.stages if not stage.commits],
            )  # fmt: skip
        claim_owner = ""
        if cache.source.claim_name and not pods:  # before there are any it is asked whose the claim is
            claim_owner = source_claim_owner(await self.client.get(CLAIM, namespace, cache.source.claim_name))
        users = (run["metadata"]["name"] for run in self.informers.users_of(namespace, cache.identity.name))
        return ObservedBuild(
            now=now,
            pods=pods,
            result_digest=snapshot.result_digest,
            manifest=snapshot.manifest,
            published_sha256=snapshot.published_sha256,
            found_sha256=snapshot.found_sha256,
            publication=self.publisher.observe(uid),
            failure=snapshot.failure,
            failure_disproved=profile is not None and self.reported.disproves_failure(uid, held, snapshot),
            reports=snapshot.reports,
            used_by=tuple(sorted(users)),
            source_claim_owner=claim_owner,
            source=None if profile is None else self._observe_source(cache, held, profile, snapshot),
            store_error=snapshot.error,
            profile_error=unknown_profile(cache.storage_profile, self.settings.storage_profiles),
            apply_error=refusal_of(self.memories, cache.identity),
            previous=stored.status,
        )

    def decide(self, cache: DatasetCache, observed: ObservedBuild) -> Plan:
        """Returns the next step; pure."""
        return decide_dataset_cache(cache, observed, self.settings)

    async def record(self, cache: DatasetCache, stored: Stored, plan: Plan) -> Plan:
        """Writes what an erased status would lose, before the status reports it; returns the plan to apply."""
        profile = self.settings.storage_profiles.get(cache.storage_profile)
        if plan.records and profile is not None:
            await self.bucket.record(profile, cache.identity.namespace, cache.identity.uid, plan.records)
        return plan

    def follow(self, cache: DatasetCache, observed: ObservedBuild, plan: Plan) -> None:
        """Remembers what was decided, and has what is complete published."""
        uid, profile = cache.identity.uid, self.settings.storage_profiles.get(cache.storage_profile)
        self.reported.note(uid, observed, parse_status(DatasetCacheStatus, plan.status))
        if plan.publish is not None and profile is not None:
            self.publisher.ask(profile, plan.publish)
        elif not observed.store_error:
            self.publisher.forget(uid)

    def missed_events(self, observed: ObservedBuild, plan: Plan) -> Iterable[Missed] | None:
        """Returns the events that an earlier process may have died before sending; None: not known yet."""
        planned = parse_status(DatasetCacheStatus, plan.status)
        return missed_cache_events(observed.status, observed.now) if planned.phase == observed.status.phase else None

    async def finalize(self, cache: DatasetCache, stored: Stored) -> float | None:
        """Makes one step of the removal of its data; returns when to continue, None when it may be deleted."""
        return await self.end.step(cache, stored)

    def _observe_source(
        self, cache: DatasetCache, status: DatasetCacheStatus, profile: StorageProfile, snapshot: BucketSnapshot
    ) -> ObservedSource | None:
        """Returns what the raw data are now, of a complete cache and of one that waits for other data."""
        identity, prefix = cache.identity, cache.source.prefix or ""
        if prefix and snapshot.manifest is not None and not snapshot.error:
            return self.sources.observe(
                profile, identity.namespace, identity.uid, prefix, snapshot.manifest.source_sha256
            )
        failure = snapshot.failure
        if failure is None or status.phase != CachePhase.FAILED or not begins_again_by_itself(cache, failure.reason):
            return None
        return self.sources.observe(
            profile, identity.namespace, identity.uid, prefix, failure.source_sha256,
            at_least_every_s=listed_every_s(self.settings),
        )  # fmt: skip
