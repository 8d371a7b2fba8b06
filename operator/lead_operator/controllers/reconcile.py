"""One pass over one resource: observe, decide, apply. Called by the manager's workers, one at a time a key.

A pass rests on nothing but what it sees: it may run twice, late, or after a crash between any two lines.
"""

import asyncio
import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import structlog

from lead_operator import names
from lead_operator.bucket.bucket_view import BucketLook, BucketView
from lead_operator.bucket.cache_publisher import CachePublisher
from lead_operator.bucket.checkpoint_gc import CheckpointSweep, sweep_requests
from lead_operator.bucket.source_watch import SourceWatch
from lead_operator.controllers.apply import Applier, CreateRefused
from lead_operator.controllers.cache_finalizer import CacheEnd
from lead_operator.controllers.reported_builds import ReportedBuilds
from lead_operator.controllers.reported_counters import ReportedCounters
from lead_operator.controllers.reported_ends import ReportedEnds
from lead_operator.controllers.run_recorder import RunRecorder
from lead_operator.decisions.dataset_cache.build_state import build_generation
from lead_operator.decisions.dataset_cache.plan import decide_dataset_cache
from lead_operator.decisions.dataset_cache.rebuild import begins_again_by_itself, listed_every_s
from lead_operator.decisions.missed_events import Missed, missed_cache_events, missed_run_events
from lead_operator.decisions.observed import ObservedBuild, ObservedCache, ObservedClaim, ObservedPod, ObservedRun
from lead_operator.decisions.plan import EventNote, Plan
from lead_operator.decisions.rejected import decide_rejected
from lead_operator.decisions.store_remedy import PROFILE_REMEDY
from lead_operator.decisions.training_run.end import is_over, reported_end
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.errors import SpecError
from lead_operator.kube.api_errors import Conflict, Refused
from lead_operator.kube.client import KubeClient
from lead_operator.kube.copy_budget import CUT
from lead_operator.kube.event_recorder import EventRecorder
from lead_operator.kube.informers import Informers
from lead_operator.kube.kinds import (
    CLAIM,
    DATASET_CACHE,
    POD,
    SERVICE,
    TRAINING_RUN,
    Kind,
    KubernetesObject,
    ResourceKey,
    key_of,
)
from lead_operator.kube.object_reader import REJECTION
from lead_operator.kube.observe import (
    NodeWatch,
    expected_build_pods,
    expected_training_pods,
    has_ended,
    is_finished,
    is_shared_claim,
    observe_cache,
    observe_claim,
    observe_pods,
    parse_time,
    source_claim_owner,
)
from lead_operator.names import CachePhase
from lead_operator.near_names import explain_unknown_profile
from lead_operator.objects.session_cache_claim import claim_name
from lead_operator.resources.dataset_cache import DatasetCache, parse_dataset_cache
from lead_operator.resources.dataset_cache_status import DatasetCacheStatus
from lead_operator.resources.identity import Identity
from lead_operator.resources.recipe_config import ConfigOmitted
from lead_operator.resources.status_format import parse_status
from lead_operator.resources.training_run import TrainingRun, parse_training_run
from lead_operator.resources.training_run_status import TrainingRunStatus
from lead_operator.settings import Settings

AFTER_END_LOOK_S = 1.0
UNTOUCHED_FOR = timedelta(seconds=5)
COLLECTORS_FINALIZERS = {"orphan", "foregroundDeletion"}
AFTER_REJECTION_LOOK_S = 2.0
AFTER_REFUSAL_LOOK_S = 0.1  # status still tells of a refusal that is over

log = structlog.get_logger(__name__)


@dataclass
class Reconciler:
    """What a pass needs: where to look, how to write, and which keys must be read live first."""

    client: KubeClient
    informers: Informers
    nodes: NodeWatch
    bucket: BucketView
    sweep: CheckpointSweep
    run_recorder: RunRecorder
    sources: SourceWatch
    publisher: CachePublisher
    cache_end: CacheEnd
    applier: Applier
    recorder: EventRecorder
    settings: Settings
    ends: ReportedEnds
    counters: ReportedCounters = field(default_factory=ReportedCounters)
    builds: ReportedBuilds = field(default_factory=ReportedBuilds)
    doubtful: set[ResourceKey] = field(default_factory=set)  # a write's answer was lost, or the copy was too old
    uids: dict[ResourceKey, str] = field(default_factory=dict)  # of the resource last seen under a key
    # uid -> generation of a spec, and why its newest children were not taken
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
    rejecting: asyncio.Lock = field(default_factory=asyncio.Lock)
    announced: set[str] = field(default_factory=set)  # uids of resources whose earlier events were sent
    seen: set[str] = field(default_factory=set)  # uids of the runs that this process has passed over

    async def reconcile(self, key: ResourceKey) -> float | None:
        """Makes one pass; returns in how many seconds the resource wants to be looked at again, if at all."""
        if not self.informers.serves(key.namespace):
            self.informers.look_when_served(key)
            return None
        live = key in self.doubtful
        kind = TRAINING_RUN if key.kind == TRAINING_RUN.kind else DATASET_CACHE
        body = await self._current(kind, key)
        if body is not None and _takes_its_data(body):
            return await self.cache_end.step({**body, "apiVersion": kind.api_version, "kind": kind.kind})
        if body is None or "deletionTimestamp" in body["metadata"]:
            if body is not None and _stays_for_others(body):
                await self._stop_pods(body)
            self._forget(key)  # its children go with it, by their owner references
            return None
        if self.uids.setdefault(key, body["metadata"]["uid"]) != body["metadata"]["uid"]:
            self._forget(key)
            self.uids[key] = body["metadata"]["uid"]
        body = {**body, "apiVersion": kind.api_version, "kind": kind.kind}
        if REJECTION in body:
            return await self._reject(kind, body)
        try:
            # From here until all answers are in, what the copy says may be older than what we did.
            self.doubtful.add(key)
            one_pass = self._training_run if kind is TRAINING_RUN else self._dataset_cache
            try:
                again_s = await one_pass(body, live)
            except ConfigOmitted:  # before anything was written: no pod is planned without its config
                again_s = await one_pass(await self._whole(kind, body), live)
            self.doubtful.discard(key)
        except SpecError as error:
            self.doubtful.discard(key)
            log.warning("spec_refused", resource=str(key), error=str(error))
            self.recorder.record(body, EventNote("Warning", "SpecRefused", str(error)))
            return None
        return again_s

    async def _stop_pods(self, body: KubernetesObject) -> None:
        """Stops the pods of a deleted resource that a finalizer of somebody else keeps, and with it its children."""
        namespace, uid = body["metadata"]["namespace"], body["metadata"]["uid"]
        for pod in self.informers.of(POD, namespace).owned_by(namespace, uid):
            if not has_ended(pod):
                await self.client.delete(POD, namespace, pod["metadata"]["name"], uid=pod["metadata"]["uid"])

    async def _reject(self, kind: Kind, body: KubernetesObject) -> float | None:
        """Reports on a resource why it is not served; its next version is looked at as any other.

        One at a time: a status on an object of 1.5 MB takes the API server seconds and a hundred megabytes.
        """
        rejection, generation = body[REJECTION], body["metadata"].get("generation", 0)
        log.warning("resource_rejected", resource=str(key_of(body, kind)), reason=rejection.reason)
        self.recorder.record(body, EventNote("Warning", rejection.reason, rejection.message))
        held = parse_status(TrainingRunStatus if kind is TRAINING_RUN else DatasetCacheStatus, body.get("status"))
        plan = decide_rejected(rejection, held, generation=generation, now=self.client.clock.now())
        if plan.status != body.get("status") and self.rejecting.locked():
            return AFTER_REJECTION_LOOK_S
        try:
            async with self.rejecting:
                return await self.applier.apply(kind, body, plan)
        except Refused as error:  # at the limit of what etcd stores there is no room for a status: the event tells it
            log.warning("rejection_not_written", resource=str(key_of(body, kind)), error=str(error))
            return None

    async def _whole(self, kind: Kind, body: KubernetesObject) -> KubernetesObject:
        """Returns a resource with every `config`; raises Conflict where it is no longer what the copy says."""
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        whole = await self.client.get(kind, namespace, name, whole=True)
        same = ("uid", "generation")
        if whole is None or any(whole["metadata"].get(key) != body["metadata"].get(key) for key in same):
            raise Conflict(409, "Conflict", f"{kind.kind} {namespace}/{name} has changed since it was seen")
        return {**body, "spec": whole["spec"]}

    async def _training_run(self, body: KubernetesObject, live: bool) -> float | None:
        run, namespace = parse_training_run(body), body["metadata"]["namespace"]
        previous = parse_status(TrainingRunStatus, body.get("status"))
        if (later_s := self._rests_for_s(run, body)) is not None:
            return later_s
        copies = self.informers.of(POD, namespace).owned_by(namespace, run.identity.uid)
        await self._ask_for_unseen(namespace, expected_training_pods(run, previous, copies))
        if live:
            await self._ask_for_unseen(namespace, expected_training_pods(run, previous, copies, ended=True))
        observed = await self._observe_run(run, body)
        plan = decide_training_run(run, observed, self.settings)
        # Before another attempt: is the copy right that nothing of the last one is left?
        asked = expected_training_pods(run, previous, copies, ended=True)
        if plan.claim_attempt and not live and await self._ask_for_unseen(namespace, asked):
            observed = await self._observe_run(run, body)
            plan = decide_training_run(run, observed, self.settings)
        profile = self.settings.storage_profiles.get(run.storage_profile)
        recorded = await self.run_recorder.record(body, profile, plan)
        if recorded is None:
            observed = await self._observe_run(run, body)
            recorded = decide_training_run(run, observed, self.settings)
        plan = recorded
        planned = parse_status(TrainingRunStatus, plan.status)
        self.ends.note(run, previous, planned)
        self.counters.note(run, planned)
        if reported_end(previous) is None or is_over(observed):
            self._announce(body, missed_run_events(previous, observed.now))
        if profile is not None and not observed.store_error:
            for request in sweep_requests(run, observed, planned, profile):
                self.sweep.ask(request)  # first: once its end is written, nobody looks again
        again_s = await self._apply(TRAINING_RUN, body, plan)
        return self._no_later_than_progress(again_s, observed.pods)

    async def _dataset_cache(self, body: KubernetesObject, live: bool) -> float | None:
        cache, namespace = parse_dataset_cache(body), body["metadata"]["namespace"]
        previous = parse_status(DatasetCacheStatus, body.get("status"))
        await self._ask_for_unseen(namespace, expected_build_pods(cache, previous))
        if live:
            await self._ask_for_unseen(namespace, expected_build_pods(cache, previous, ended=True))
        observed = await self._observe_build(cache, body)
        plan = decide_dataset_cache(cache, observed, self.settings)
        asked = expected_build_pods(cache, previous, ended=True)
        if plan.claim_attempt and not live and await self._ask_for_unseen(namespace, asked):
            observed = await self._observe_build(cache, body)
            plan = decide_dataset_cache(cache, observed, self.settings)
        profile = self.settings.storage_profiles.get(cache.storage_profile)
        planned = parse_status(DatasetCacheStatus, plan.status)
        self.builds.note(cache.identity.uid, observed, planned)
        if planned.phase == previous.phase:
            self._announce(body, missed_cache_events(previous, observed.now))
        if plan.records and profile is not None:
            await self.bucket.record(profile, namespace, cache.identity.uid, plan.records)
        if plan.publish is not None and profile is not None:
            self.publisher.ask(profile, plan.publish)
        elif not observed.store_error:
            self.publisher.forget(cache.identity.uid)
        again_s = await self._apply(DATASET_CACHE, body, plan)
        return self._no_later_than_progress(again_s, observed.pods)

    async def _apply(self, kind: Kind, body: KubernetesObject, plan: Plan) -> float | None:
        uid, generation = body["metadata"]["uid"], body["metadata"]["generation"]
        try:
            again_s = await self.applier.apply(kind, body, plan)
        except CreateRefused as error:
            self.refusals[uid] = (generation, str(error))  # the next pass tells it; its pause grows with each refusal
            raise
        return AFTER_REFUSAL_LOOK_S if self.refusals.pop(uid, None) else again_s

    def _announce(self, body: KubernetesObject, missed: Iterable[Missed]) -> None:
        """Sends events of before this process, once: the process that wrote the status may have died before."""
        if body["metadata"]["uid"] not in self.announced:
            self.announced.add(body["metadata"]["uid"])
            for note, happened in missed:
                self.recorder.announce(body, note, happened)

    def _rests_for_s(self, run: TrainingRun, body: KubernetesObject) -> float | None:
        """Returns how long the bucket of a run may wait that a new process meets and finds as its status says, or None.

        After a restart every run is met at once. Whatever there is to do or to tell needs the bucket; nothing does not.
        """
        first = run.identity.uid not in self.seen
        self.seen.add(run.identity.uid)
        if not first or not body.get("status") or is_finished(body):
            return None
        observed = self._observe_cluster(run, body)
        plan = decide_training_run(run, observed, self.settings)
        deletes = plan.deletes or plan.claim_deletes or plan.delete_self
        acts = plan.claim_attempt or deletes or plan.creates or plan.tries or plan.annotates or plan.events
        if acts or plan.status != observed.previous or any(pod.terminal for pod in observed.pods):
            return None
        later_s = self.settings.progress_s * random.uniform(0.5, 1.0)
        return min(later_s, plan.requeue_after_s or later_s)

    async def _ask_for_unseen(self, namespace: str, expected: Iterable[str]) -> bool:
        """Reads live the pods that should be there and are not in the copy; returns whether there is one.

        The copy may be older than the resource. Only what the server does not hold either counts as gone; how a pod
        ended decides which budget pays for it. Of a resource that had to be read live because its copy was too old, and
        before another attempt, pods of an attempt that has ended are asked for too.
        """
        copies = self.informers.of(POD, namespace)
        unseen = [name for name in expected if copies.get(namespace, name) is None]
        answers = await asyncio.gather(*(self.client.get(POD, namespace, name) for name in unseen))
        found = [pod for pod in answers if pod is not None]
        for pod in found:
            copies.note_own_write(pod)
        return bool(found)

    async def _observe_run(self, run: TrainingRun, body: KubernetesObject) -> ObservedRun:
        observed = self._observe_cluster(run, body)
        profile = self.settings.storage_profiles.get(run.storage_profile)
        if profile is None:
            return observed
        if reported_end(observed.status) is not None:
            check = await self.ends.check(run, profile, observed)
            observed = replace(observed, ended=check.ended, end_disproved=check.disproved, store_error=check.error)
            if check.error or (is_over(observed) and not observed.erased):
                return observed  # of one that has ended, only its restarts may be missing: they are in the bucket
        look = await self.bucket.look_at_run(
            profile,
            run.identity.namespace,
            run.identity.uid,
            tuple((instance.stage.name, instance.seed) for instance in run.instances),
            live=_live(observed.pods),
            max_age_s=self._look_age_s(observed.pods),
            untouched=_is_untouched(body, observed.pods, observed.now),
            erased=observed.erased,
        )
        observed = replace(observed, instances=look.instances, ended=look.ended, book=look.book, store_error=look.error)
        return self.counters.check(run, observed)

    def _observe_cluster(self, run: TrainingRun, body: KubernetesObject) -> ObservedRun:
        """Returns what is known of a run without its bucket."""
        now, namespace, uid = self.client.clock.now(), run.identity.namespace, run.identity.uid
        caches = self.informers.of(DATASET_CACHE, namespace)
        known = run.storage_profile in self.settings.storage_profiles
        held = body.get("status", {})
        pods = observe_pods(self.informers.of(POD, namespace).owned_by(namespace, uid), self.nodes, now)
        health = {node: self.nodes.health(node, now) for node in parse_status(TrainingRunStatus, held).cache_nodes}
        return ObservedRun(
            now=now,
            pods=tuple(pod for pod in pods if pod.role != names.Role.CHECK),
            checks=tuple(pod for pod in pods if pod.role == names.Role.CHECK),
            service_exists=bool(self.informers.of(SERVICE, namespace).owned_by(namespace, uid)),
            claims=self._claims_of(run),
            nodes_away={node: seen.not_ready_since for node, seen in health.items() if seen.not_ready_since},
            caches=tuple(
                self._observe_cache(name, caches.get(namespace, name), caches.names(namespace)) for name in run.datasets
            ),
            profile_error="" if known else self._no_profile(run.storage_profile),
            apply_error=self._refusal(run.identity),
            previous=held,
        )

    def _observe_cache(self, name: str, body: KubernetesObject | None, names_there: Iterable[str]) -> ObservedCache:
        """Returns what a run may know of a cache: one whose status says Ready is, once its own pass has seen why."""
        cache = observe_cache(name, body, names_there)
        if body is None or not cache.ready:
            return cache
        known = self.builds.is_published(body["metadata"]["uid"], cache.digest, cache.manifest_sha256)
        return cache if known else replace(cache, ready=False, message="its manifest is being read")

    def _claims_of(self, run: TrainingRun) -> tuple[ObservedClaim, ...]:
        """Returns the session-cache claims that are there: the run's own, or those that it shares."""
        claims, shared = self.informers.of(CLAIM, run.identity.namespace), run.session_cache.shared_claim
        if not shared:
            return tuple(observe_claim(claim) for claim in claims.owned_by(run.identity.namespace, run.identity.uid))
        named = (claims.get(run.identity.namespace, claim_name(run, rank)) for rank in range(run.nodes))
        return tuple(observe_claim(claim) for claim in named if claim is not None and is_shared_claim(shared, claim))

    async def _observe_build(self, cache: DatasetCache, body: KubernetesObject) -> ObservedBuild:
        now, namespace, uid = self.client.clock.now(), cache.identity.namespace, cache.identity.uid
        pods = observe_pods(self.informers.of(POD, namespace).owned_by(namespace, uid), self.nodes, now)
        held = parse_status(DatasetCacheStatus, body.get("status"))
        profile = self.settings.storage_profiles.get(cache.storage_profile)
        look = BucketLook()
        if profile is not None:
            look = await self.bucket.look_at_build(
                profile, namespace, uid, build_generation(cache, held),
                shares=cache.parallelism, now=now, live=_live(pods), max_age_s=self._look_age_s(pods),
                stages=[(stage.name, stage.workers) for stage in cache.stages if not stage.commits],
            )  # fmt: skip
        source = None
        if profile is not None and cache.source.prefix and look.manifest is not None and not look.error:
            source = self.sources.look(profile, namespace, uid, cache.source.prefix, look.manifest.source_sha256)
        elif profile is not None and look.failure is not None and _waits_for_data(cache, held, look.failure.reason):
            source = self.sources.look(
                profile, namespace, uid, cache.source.prefix or "", look.failure.source_sha256,
                at_least_every_s=listed_every_s(self.settings),
            )  # fmt: skip
        claim_owner = ""
        if cache.source.claim_name and not pods:  # before there are any it is asked whose the claim is
            claim_owner = source_claim_owner(await self.client.get(CLAIM, namespace, cache.source.claim_name))
        users = (run["metadata"]["name"] for run in self.informers.users_of(namespace, cache.identity.name))
        return ObservedBuild(
            now=now,
            pods=pods,
            result_digest=look.result_digest,
            manifest=look.manifest,
            published_sha256=look.published_sha256,
            found_sha256=look.found_sha256,
            publication=self.publisher.look(uid),
            failure=look.failure,
            failure_disproved=profile is not None and self.builds.disproves_failure(uid, held, look),
            words=look.words,
            used_by=tuple(sorted(users)),
            source_claim_owner=claim_owner,
            source=source,
            store_error=look.error,
            profile_error="" if profile else self._no_profile(cache.storage_profile),
            apply_error=self._refusal(cache.identity),
            previous=body.get("status", {}),
        )

    async def _current(self, kind: Kind, key: ResourceKey) -> KubernetesObject | None:
        informer = self.informers.of(kind, key.namespace)
        if key not in self.doubtful:
            copy = informer.get(key.namespace, key.name)
            if copy is None or CUT not in copy:
                return copy
            return await self.client.get(kind, key.namespace, key.name)
        body = await self.client.get(kind, key.namespace, key.name)
        if body is None:
            informer.forget(key.namespace, key.name)
        else:
            informer.note_own_write(body)
        self.doubtful.discard(key)
        return body

    def _forget(self, key: ResourceKey) -> None:
        uid = self.uids.pop(key, None)
        if uid is not None:
            self.seen.discard(uid)
            self.announced.discard(uid)
            self.bucket.forget(uid)
            self.ends.forget(uid)
            self.counters.forget(uid)
            self.builds.forget(uid)
            self.sweep.forget(uid)
            self.sources.forget(uid)
            self.publisher.forget(uid)
            self.applier.forget(uid)
            self.cache_end.forget(uid)
            self.refusals.pop(uid, None)

    def _no_later_than_progress(self, again_s: float | None, pods: tuple[ObservedPod, ...]) -> float | None:
        # While pods work, the bucket is where the news is, and it sends no events.
        if all(pod.terminal for pod in pods):
            return again_s
        return min(again_s or self.settings.progress_s, self.settings.progress_s)

    def _look_age_s(self, pods: tuple[ObservedPod, ...]) -> float:
        # Pods that have just ended leave their last word in the bucket, and the next step waits for it.
        ended = bool(pods) and all(pod.terminal for pod in pods)
        return min(AFTER_END_LOOK_S, self.settings.progress_s) if ended else self.settings.progress_s

    def _refusal(self, identity: Identity) -> str:
        generation, why = self.refusals.get(identity.uid, (0, ""))
        return why if generation == identity.generation else ""

    def _no_profile(self, name: str) -> str:
        return f"{explain_unknown_profile(name, self.settings.storage_profiles)}; {PROFILE_REMEDY}"


def _is_untouched(body: KubernetesObject, pods: tuple[ObservedPod, ...], now: datetime) -> bool:
    """A resource that nobody has acted on has nothing in the bucket; one that is older may have lost its status."""
    created = parse_time(body["metadata"]["creationTimestamp"])
    return not body.get("status") and not pods and created is not None and now - created < UNTOUCHED_FOR


def _waits_for_data(cache: DatasetCache, status: DatasetCacheStatus, reason: str) -> bool:
    return status.phase == CachePhase.FAILED and begins_again_by_itself(cache, reason)


def _takes_its_data(body: KubernetesObject) -> bool:
    metadata = body["metadata"]
    return "deletionTimestamp" in metadata and names.CACHE_DATA_FINALIZER in metadata.get("finalizers", [])


def _stays_for_others(body: KubernetesObject) -> bool:
    """Tells whether a deleted resource waits for a finalizer that is neither ours nor the garbage collector's own."""
    finalizers = set(body["metadata"].get("finalizers", []))
    return bool(finalizers - COLLECTORS_FINALIZERS) and "orphan" not in finalizers  # it asks that children stay


def _live(pods: tuple[ObservedPod, ...]) -> frozenset[str]:
    """Whose end makes a look at the bucket due at once: it may have left a last word. What is said before has time."""
    return frozenset(pod.uid for pod in pods if not pod.terminal)
