"""What is known of a DatasetCache's build: one worker a share of a stage's work, from status and pods together. Pure.

A build belongs to the generation of the spec that began it. A complete one goes on answering later generations while
only what does not change its result has changed: then nothing is rebuilt, perhaps from raw data long gone.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, replace

from lead_operator import names
from lead_operator.decisions.observed import ObservedBuild, ObservedPod
from lead_operator.decisions.plan import PodToDelete, PublishRequest, retire
from lead_operator.names import CachePhase, Condition
from lead_operator.resources.dataset_cache import DatasetCache
from lead_operator.resources.dataset_cache_status import BuildStatus, DatasetCacheStatus, WorkerStatus
from lead_operator.resources.recipe_config import config_sha256
from lead_operator.resources.status_format import FailureStatus, JsonObject

NODE_LOSS_S = 60.0
STORAGE_UNAVAILABLE = "StorageUnavailable"  # the message of Ready is built from the error in `status`


@dataclass(frozen=True)
class Worker:
    """One share of a stage's work: shards, or samples, k with k % workers == index."""

    index: int
    stage: str = ""  # empty: the last one, which commits the manifest
    attempt: int = 0  # newest claimed
    ended: int = 0  # newest that failed and is accounted for
    created: bool = False
    done: bool = False
    errors: int = 0
    infrastructure_failures: int = 0
    end_time: str | None = None
    pods: tuple[ObservedPod, ...] = ()

    @property
    def share(self) -> tuple[str, int]:
        """Which share of which stage it is."""
        return self.stage, self.index

    @property
    def pod(self) -> ObservedPod | None:
        """The pod of the newest attempt."""
        return next((p for p in self.pods if p.attempt == self.attempt), None)

    @property
    def active(self) -> bool:
        """Whether an attempt is claimed that has not ended yet."""
        return self.attempt > self.ended and not self.done

    def to_status(self) -> WorkerStatus:
        """Returns the entry in status.build.workers."""
        return WorkerStatus(
            stage=self.stage,
            index=self.index,
            attempt=self.attempt,
            ended_attempt=self.ended,
            created=self.created,
            done=self.done,
            errors=self.errors,
            infrastructure_failures=self.infrastructure_failures,
            end_time=self.end_time,
        )


@dataclass(frozen=True)
class BuildState:
    """The build that answers the newest spec."""

    generation: int  # that began it
    workers: tuple[Worker, ...]
    rebuilds: int  # how often it was begun again
    orphans: tuple[ObservedPod, ...]  # live pods of an older spec or of no worker

    def with_worker(self, worker: Worker) -> "BuildState":
        """Returns the state with one worker changed."""
        return replace(self, workers=tuple(worker if w.share == worker.share else w for w in self.workers))

    def of_stage(self, name: str) -> tuple[Worker, ...]:
        """Returns the workers of a stage."""
        return tuple(worker for worker in self.workers if worker.stage == name)

    def is_complete(self, *stages: str) -> bool:
        """Returns whether every share of the named stages is done."""
        return all(worker.done for worker in self.workers if worker.stage in stages)

    def restarted(self) -> "BuildState":
        """Returns the state in which every share has to be done once more."""
        again = tuple(replace(w, done=False, ended=w.attempt, created=False) for w in self.workers)
        return replace(self, workers=again, rebuilds=self.rebuilds + 1)

    def begun_with_other_data(self) -> "BuildState":
        """Returns the state in which every share has to be done once more, with a budget of its own."""
        again = self.restarted()
        return replace(again, workers=tuple(replace(w, errors=0, infrastructure_failures=0) for w in again.workers))


def worker_pod_name(cache: DatasetCache, generation: int, worker: Worker) -> str:
    """Returns the name of the pod of a worker's newest attempt."""
    return names.build_pod_name(cache.identity.name, generation, worker.attempt, worker.index, worker.stage)


def build_inputs(cache: DatasetCache) -> str:
    """Returns a hash of all in the spec that a build's result depends on."""
    inputs = [cache.recipe, cache.storage_profile, asdict(cache.source), list(cache.collections)]
    inputs.append(config_sha256(cache.config))
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]


def build_generation(cache: DatasetCache, previous: DatasetCacheStatus) -> int:
    """Returns the generation whose build answers the spec: an older one where that is complete and of the same inputs.

    `previous`: the status. A pin on another digest asks for another build. A complete build stays one while Ready is
    False for another reason: an unknown storage profile.
    """
    build, newest = previous.build or BuildStatus(), cache.identity.generation
    same = build.inputs == build_inputs(cache) and cache.expect_digest in ("", previous.digest)
    whole = bool(build.workers) and all(entry.done for entry in build.workers)
    complete = previous.holds(Condition.READY) or (whole and not previous.holds(Condition.FAILED))
    return build.generation or newest if same and complete else newest


def answers(cache: DatasetCache, previous: DatasetCacheStatus) -> bool:
    """Returns whether a status is about the build that answers the spec."""
    newest = cache.identity.generation
    return previous.observed_generation == newest or build_generation(cache, previous) != newest


def read_build_state(cache: DatasetCache, observed: ObservedBuild, *, fresh: bool = False) -> BuildState:
    """Returns the build as it stands, or how one of the newest generation begins; others' claims are forgotten."""
    build = observed.status.build or BuildStatus()
    generation = cache.identity.generation if fresh else build_generation(cache, observed.status)
    if build.generation != generation:
        build = BuildStatus()
    entries = {(entry.stage, entry.index): entry for entry in build.workers}
    pods = _pods_by_share(cache, generation, observed.pods)
    shares = [(stage.name, index) for stage in cache.stages for index in range(stage.workers)]
    workers = tuple(_worker(share, entries.get(share), pods.get(share, ())) for share in shares)
    if not entries and not fresh:
        workers = tuple(_as_reported(worker, observed) for worker in workers)
    own = {pod.uid for share in shares for pod in pods.get(share, ())}
    orphans = tuple(p for p in observed.pods if not p.terminal and p.uid not in own)
    recorded = observed.failure.rebuilds if observed.failure is not None and not fresh else 0  # of an erased status
    rebuilds = max(build.rebuilds, recorded)
    return BuildState(generation=generation, workers=workers, rebuilds=rebuilds, orphans=orphans)


def _worker(share: tuple[str, int], reported: WorkerStatus | None, mine: tuple[ObservedPod, ...]) -> Worker:
    entry = reported or WorkerStatus(stage=share[0], index=share[1])
    attempt = max([entry.attempt, *(p.attempt for p in mine)])
    seen = any(p.attempt == attempt for p in mine)
    return Worker(
        stage=share[0],
        index=share[1],
        attempt=attempt,
        ended=entry.ended_attempt,
        created=seen or (entry.created and attempt == entry.attempt),
        done=entry.done,
        errors=entry.errors,
        infrastructure_failures=entry.infrastructure_failures,
        end_time=entry.end_time,
        pods=mine,
    )


def _as_reported(worker: Worker, observed: ObservedBuild) -> Worker:
    """Returns a worker of an erased status whose pods are gone as its last record has it: a stage is not done twice.

    A record that wrongly reports samples as made costs nothing: the last stage detects it, and all start again.
    """
    if not worker.stage or worker.attempt:
        return worker
    of_share = (w.record for w in observed.reports if (w.stage, w.index) == worker.share and w.record.phase == "Done")
    record = next(of_share, None)
    return worker if record is None else replace(worker, attempt=record.attempt, created=True, done=True)


def _pods_by_share(
    cache: DatasetCache, generation: int, pods: tuple[ObservedPod, ...]
) -> dict[tuple[str, int], tuple[ObservedPod, ...]]:
    """Returns the pods of a generation's build by stage and index, from their names."""
    found: dict[tuple[str, int], tuple[ObservedPod, ...]] = {}
    for pod in pods:
        for stage in cache.stages:
            name = names.build_pod_name(cache.identity.name, generation, pod.attempt, pod.rank, stage.name)
            if pod.name == name:
                found[stage.name, pod.rank] = (*found.get((stage.name, pod.rank), ()), pod)
    return found


@dataclass(frozen=True)
class CacheStep:
    """What one decision changes."""

    phase: CachePhase
    reason: str
    message: str
    state: BuildState
    last_failure: FailureStatus | None
    deletes: tuple[PodToDelete, ...] = ()
    creates: tuple[JsonObject, ...] = ()
    claim: bool = False
    publish: PublishRequest | None = None
    requeue_after_s: float | None = None


def retire_pods(pods: tuple[ObservedPod, ...], observed: ObservedBuild) -> tuple[PodToDelete, ...]:
    """Returns the deletions of pods that are not needed any more."""
    return retire(pods, now=observed.now, node_loss_s=NODE_LOSS_S)


def fail_build(
    state: BuildState, failure: FailureStatus | None, observed: ObservedBuild, reason: str, message: str
) -> CacheStep:
    """Returns the step that ends a build for good."""
    deletes = retire_pods(observed.pods, observed)
    # The verdict is written before the pods go that it rests on: without them, another would follow.
    return CacheStep(CachePhase.FAILED, reason, message, state, failure, deletes=deletes, claim=bool(deletes))
