"""A TrainingRun's part of a pass: what is observed, what is recorded before its status reports it, what is requested.

Run by `controllers.reconciler`; `controllers.dataset_cache` has the same methods in the same order.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import structlog

from lead_operator import names
from lead_operator.bucket.bucket_view import BucketView
from lead_operator.bucket.checkpoint_gc import CheckpointGC, sweep_requests
from lead_operator.bucket.closed_loop_gc import ClosedLoopGC, results_requests
from lead_operator.controllers.controller import RefusedTries, live_uids, refusal_of, snapshot_age_s
from lead_operator.controllers.reported_caches import ReportedCaches
from lead_operator.controllers.reported_runs import ReportedRuns
from lead_operator.decisions.formatting import parse_time
from lead_operator.decisions.missed_events import Missed, missed_run_events
from lead_operator.decisions.observed import ObservedCache, ObservedClaim, ObservedRun
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.remedies import unknown_profile
from lead_operator.decisions.training_run.closed_loop import reads_results
from lead_operator.decisions.training_run.end import is_over, reported_end
from lead_operator.decisions.training_run.findings import NOT_ENDED
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.decisions.training_run.records import without_the_store
from lead_operator.kube.api_errors import Conflict
from lead_operator.kube.client import KubeClient
from lead_operator.kube.informers import Informers
from lead_operator.kube.kinds import CLAIM, DATASET_CACHE, POD, SERVICE, TRAINING_RUN, KubernetesObject
from lead_operator.kube.observe import (
    expected_training_pods,
    is_shared_claim,
    observe_cache,
    observe_claim,
    observe_pods,
)
from lead_operator.memory import Memories
from lead_operator.objects.service_and_claims import claim_name
from lead_operator.resources.status_format import parse_status, status_json
from lead_operator.resources.stored import Stored
from lead_operator.resources.training_run import TrainingRun, parse_training_run
from lead_operator.resources.training_run_status import TrainingRunStatus
from lead_operator.run_metrics import NewestReports
from lead_operator.settings import Settings

UNTOUCHED_FOR = timedelta(seconds=5)

log = structlog.get_logger(__name__)


@dataclass
class TrainingRunController:
    """What such a part needs."""

    client: KubeClient
    informers: Informers
    bucket: BucketView
    sweep: CheckpointGC
    results: ClosedLoopGC
    reported: ReportedRuns
    caches: ReportedCaches
    memories: Memories
    settings: Settings

    kind = TRAINING_RUN
    status = TrainingRunStatus
    not_ended = NOT_ENDED
    finalizer = ""

    def parse(self, body: KubernetesObject) -> TrainingRun:
        """Returns a body as its spec reads; raises SpecError."""
        return parse_training_run(body)

    def rests_for_s(self, run: TrainingRun, stored: Stored) -> float | None:
        """Returns how long reading the bucket of a run with an up-to-date status may wait after a restart, or None.

        After a restart every run gets a pass at once. Runs with something to do or to report need the bucket; idle ones
        do not.
        """
        reported = parse_status(TrainingRunStatus, stored.status)
        if not stored.status or reported.holds(names.Condition.SUCCEEDED) or reported.holds(names.Condition.FAILED):
            return None
        observed = self.observe_cluster(run, stored)
        plan = self.decide(run, observed)
        if plan.acts or plan.status != observed.previous or any(pod.terminal for pod in observed.pods):
            return None
        later_s = self.settings.progress_s * random.uniform(0.5, 1.0)
        return min(later_s, plan.requeue_after_s or later_s)

    def expected_pods(self, run: TrainingRun, status: TrainingRunStatus, *, ended: bool = False) -> Iterator[str]:
        """Yields the names of the pods that were there, by status, and whose end is not accounted for."""
        return expected_training_pods(run, status, ended=ended)

    async def observe(self, run: TrainingRun, stored: Stored, *, young: bool = False) -> ObservedRun:
        """Returns what copies and bucket hold of a run now."""
        observed = self.observe_cluster(run, stored)
        profile = self.settings.storage_profiles.get(run.storage_profile)
        if profile is None:
            return observed
        if reported_end(observed.status) is not None:
            check = await self.reported.check_end(run, profile, observed)
            observed = replace(observed, ended=check.ended, end_disproved=check.disproved, store_error=check.error)
            swept = run.closed_loop is None or self.results.was_asked(run.identity.uid)
            known = is_over(observed) and not observed.erased and not reads_results(run, observed) and swept
            if check.error or known:
                return observed  # of one that has ended, only its restarts may be missing: they are in the bucket
        snapshot = await self.bucket.read_run(
            profile,
            run.identity.namespace,
            run.identity.uid,
            tuple((instance.stage.name, instance.seed) for instance in run.instances),
            live=live_uids((*observed.pods, *observed.drivers)),
            max_age_s=snapshot_age_s(observed.pods, self.settings),
            at_rest=_may_rest(observed) and not young,
            untouched=_is_untouched(stored, observed),
            erased=observed.erased,
            drives=run.closed_loop is not None,
        )
        observed = replace(
            observed,
            instances=snapshot.instances,
            ended=snapshot.ended,
            restart_record=snapshot.restart_record,
            drives=snapshot.drives,
            drives_read=not snapshot.error,
            store_error=snapshot.error,
        )
        observed = self._with_reading(run, observed)
        return self.reported.check_counters(run, observed)

    def decide(self, run: TrainingRun, observed: ObservedRun) -> Plan:
        """Returns the next step; pure."""
        return decide_training_run(run, observed, self.settings)

    async def record(self, run: TrainingRun, stored: Stored, plan: Plan) -> Plan:
        """Writes what an erased status would lose, before the status reports it; returns the plan to apply.

        The verdict in the bucket cannot be taken back, so it must not rest on an old copy: a status is written by
        compare-and-swap, an object is not. Raises Conflict where what was seen is not the newest any more, or another
        verdict stands. An unavailable store does not delay a final result; the status marks it as not yet recorded.
        """
        profile = self.settings.storage_profiles.get(run.storage_profile)
        if profile is None or not plan.records:
            return plan
        if any(record.final for record in plan.records):
            await self._require_newest(stored)
        identity = run.identity
        stands, error = await self.bucket.record(profile, identity.namespace, identity.uid, plan.records)
        if error:
            log.warning("not_recorded", resource=f"{identity.namespace}/{identity.name}", error=error)
        if error and any(record.final or record.counts for record in plan.records):
            now = self.client.clock.now()
            held, planned = (parse_status(TrainingRunStatus, each) for each in (stored.status, plan.status))
            return replace(plan, status=status_json(without_the_store(held, planned, error, now)))
        if not stands:
            raise Conflict(409, "Conflict", f"{identity}: another verdict stands in the object store")
        return plan

    def follow(self, run: TrainingRun, observed: ObservedRun, plan: Plan) -> None:
        """Remembers what was read and decided, and has checkpoints and results removed that their policies let go."""
        planned = parse_status(TrainingRunStatus, plan.status)
        reports = {(each.stage, each.seed): each.progress for each in observed.instances if each.progress is not None}
        self.memories.of(run.identity.uid, NewestReports).records = reports
        self.reported.note(run, observed.status, planned)
        profile = self.settings.storage_profiles.get(run.storage_profile)
        if profile is not None and not observed.store_error:
            for request in sweep_requests(run, observed, planned, profile):
                self.sweep.ask(request)  # before the status: once its end is written, there is no further pass
            if run.closed_loop is not None and observed.drives_read:
                self.results.ask(run.identity.uid, results_requests(run, observed, planned, profile))

    def missed_events(self, observed: ObservedRun, plan: Plan) -> Iterable[Missed] | None:
        """Returns the events that an earlier process may have died before sending; None: not known yet."""
        known = reported_end(observed.status) is None or is_over(observed)
        return missed_run_events(observed.status, observed.now) if known else None

    async def finalize(self, run: TrainingRun, stored: Stored) -> float | None:
        """A run leaves nothing to be done when it is deleted: its checkpoints stay."""
        return None

    def observe_cluster(self, run: TrainingRun, stored: Stored) -> ObservedRun:
        """Returns what is known of a run without its bucket."""
        now, namespace, uid = self.client.clock.now(), run.identity.namespace, run.identity.uid
        caches, nodes, held = self.informers.of(DATASET_CACHE, namespace), self.informers.nodes, stored.status
        pods = observe_pods(self.informers.of(POD, namespace).owned_by(namespace, uid), nodes, now)
        health = {node: nodes.health(node, now) for node in parse_status(TrainingRunStatus, held).cache_nodes}
        return ObservedRun(
            now=now,
            pods=tuple(pod for pod in pods if pod.role not in (names.Role.CHECK, names.Role.CLOSED_LOOP)),
            checks=tuple(pod for pod in pods if pod.role == names.Role.CHECK),
            drivers=tuple(pod for pod in pods if pod.role == names.Role.CLOSED_LOOP),
            refused=dict((self.memories.find(uid, RefusedTries) or RefusedTries()).why),
            service_exists=bool(self.informers.of(SERVICE, namespace).owned_by(namespace, uid)),
            claims=self._claims_of(run),
            nodes_away={node: seen.not_ready_since for node, seen in health.items() if seen.not_ready_since},
            caches=tuple(
                self._observe_cache(name, caches.get(namespace, name), caches.names(namespace)) for name in run.datasets
            ),
            profile_error=unknown_profile(run.storage_profile, self.settings.storage_profiles),
            apply_error=refusal_of(self.memories, run.identity),
            previous=held,
        )

    def _with_reading(self, run: TrainingRun, observed: ObservedRun) -> ObservedRun:
        """Returns how old the snapshot at the bucket is, and when the next one is due."""
        reading, every_s = self.bucket.reading_of(run.identity.uid), self.settings.progress_s
        left_s = max(every_s, reading.rests_s if _may_rest(observed) else 0.0) - reading.age_s
        rested = reading.age_s > every_s and not observed.store_error
        return replace(observed, rested=rested, next_reading_s=left_s if left_s > 0 else every_s)

    def _observe_cache(self, name: str, body: KubernetesObject | None, names_there: Iterable[str]) -> ObservedCache:
        """Returns a cache as a run may see it: Ready in its status counts once its own pass has verified it."""
        cache = observe_cache(name, body, names_there)
        if body is None or not cache.ready:
            return cache
        known = self.caches.is_published(body["metadata"]["uid"], cache.digest, cache.manifest_sha256)
        return cache if known else replace(cache, ready=False, message="its manifest is being read")

    def _claims_of(self, run: TrainingRun) -> tuple[ObservedClaim, ...]:
        """Returns the session-cache claims that are there: the run's own, or those that it shares."""
        claims, shared = self.informers.of(CLAIM, run.identity.namespace), run.session_cache.shared_claim
        if not shared:
            return tuple(observe_claim(claim) for claim in claims.owned_by(run.identity.namespace, run.identity.uid))
        named = (claims.get(run.identity.namespace, claim_name(run, rank)) for rank in range(run.nodes))
        return tuple(observe_claim(claim) for claim in named if claim is not None and is_shared_claim(shared, claim))

    async def _require_newest(self, stored: Stored) -> None:
        identity = stored.identity
        live = await self.client.get(TRAINING_RUN, identity.namespace, identity.name)
        if live is None or live["metadata"]["resourceVersion"] != stored.version:
            raise Conflict(409, "Conflict", f"{identity} has changed")


def _may_rest(observed: ObservedRun) -> bool:
    """Whether an unchanged bucket can be read less often: the run trains, and its pods report their end."""
    ended = all(pod.terminal for pod in observed.pods)
    return observed.status.phase == names.RunPhase.RUNNING and not ended


def _is_untouched(stored: Stored, observed: ObservedRun) -> bool:
    """A resource that nobody has acted on has nothing in the bucket; one that is older may have lost its status."""
    created = parse_time(stored.created_at)
    return not stored.status and not observed.pods and created is not None and observed.now - created < UNTOUCHED_FOR
