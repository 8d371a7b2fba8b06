"""Where each stage instance stands, by status, pods and bucket together, and what one decision changes of it. Pure.

Attempt numbers only grow. The highest of status, pods and the operator's own records counts, so that an erased status
or a restored database can never use one twice. A fencing object, which a pod writes, counts for at most one more than
those records: no pod raises the number.
"""

import re
from dataclasses import dataclass, field, replace

from lead_operator.decisions.formatting import format_time
from lead_operator.decisions.observed import ObservedCheckpoint, ObservedInstance, ObservedPod, ObservedRun
from lead_operator.decisions.plan import SOON_S, ClaimToDelete, PodToAnnotate, PodToDelete
from lead_operator.decisions.training_run.restarts import Backoff, Restarts, read_backoff, recorded_backoff
from lead_operator.names import Role, RunPhase
from lead_operator.resources.status_format import JsonObject
from lead_operator.resources.training_run import StageInstance, TrainingRun
from lead_operator.resources.training_run_status import (
    AttemptFailure,
    CheckpointStatus,
    InstanceStatus,
    ProgressStatus,
    RestartState,
)
from lead_protocol.object_keys import position_of

_STEP = re.compile(r"/checkpoints/(\d{12})/")  # in the URI of a checkpoint


@dataclass(frozen=True)
class InstanceState:
    """One stage instance as it stands."""

    instance: StageInstance
    result: str  # Succeeded, Failed; empty while it is open
    attempt: int  # newest claimed
    ended: int  # newest that is over and accounted for
    created: bool  # all pods of the newest attempt were seen
    nodes: int  # pods of the newest attempt, whatever spec.nodes is by now; before the first, those that the spec wants
    nodes_known: bool  # False: it is claimed and nothing is seen of it; `nodes` is that of an attempt before, if any
    attempt_time: str | None
    backoff: Backoff  # its newest ends in a row
    start_time: str | None
    completion_time: str | None
    best: str
    resumed_from_step: int | None
    known_progress: ProgressStatus  # as the status last had it, like the next one
    known_checkpoint: CheckpointStatus | None
    pods: tuple[ObservedPod, ...]
    bucket: ObservedInstance | None

    @property
    def succeeded(self) -> bool:
        """Whether its final checkpoint is committed and nothing of it runs."""
        return self.result == "Succeeded"

    @property
    def active(self) -> bool:
        """Whether an attempt is claimed that has not ended yet."""
        return self.attempt > self.ended

    @property
    def nodes_unknown(self) -> bool:
        """Whether nothing is seen of its only attempt, not even how many pods it has."""
        return not self.nodes_known and (self.bucket is None or self.bucket.started is None)

    @property
    def recovering(self) -> bool:
        """Whether its newest end was a failure (not a suspension)."""
        return self.ended > 0 and self.backoff.failed_attempt == self.ended

    @property
    def attempt_pods(self) -> tuple[ObservedPod, ...]:
        """Pods of the newest attempt, by rank."""
        return tuple(sorted((p for p in self.pods if p.attempt == self.attempt), key=lambda p: p.rank))

    @property
    def checkpoint(self) -> ObservedCheckpoint | None:
        """The newest committed checkpoint."""
        return self.bucket.checkpoint if self.bucket else None

    @property
    def checkpoint_uri(self) -> str:
        """Where the newest checkpoint lies that the status named; empty where it named none."""
        return self.known_checkpoint.uri if self.known_checkpoint else ""

    @property
    def final_committed(self) -> bool:
        """Whether the checkpoint is committed with which the stage ends: of the last epoch, or of an early end."""
        found = self.checkpoint
        if found is None or found.fault:
            return False
        return found.final or found.epoch >= self.instance.stage.epochs

    @property
    def lost_step(self) -> int:
        """Step of a checkpoint that status or the restart records name, and whose manifest is gone; 0: none is lost.

        It is unknown while the bucket is not read, nor where a valid checkpoint is left. One that is quarantined is
        still there: the pods report what is wrong with it.
        """
        if self.bucket is None or self.checkpoint is not None:
            return 0
        named = _STEP.search(self.checkpoint_uri)
        known = {self.backoff.at_step, int(named[1]) if named else 0}
        quarantined = {position[0] for key in self.bucket.quarantined if (position := position_of(key))}
        return max(0, *known - quarantined, 0)

    @property
    def epochs_trained(self) -> int:
        """Epochs of its final checkpoint; as reported before where that is not observed."""
        found = self.checkpoint if self.final_committed else None
        return min(found.epoch, self.instance.stage.epochs) if found is not None else self.known_progress.epoch


def choose_positions(run: TrainingRun, states: tuple[InstanceState, ...]) -> tuple[int, ...]:
    """Returns which instances to train now, at most `run.parallelism`: those begun, then the next whose parent is done.

    All done: the last one, so that there is always one to report.
    """
    done = {(s.instance.stage.name, s.instance.seed) for s in states if s.succeeded}
    open_ = [i for i, state in enumerate(states) if not state.succeeded]
    begun = [i for i in open_ if states[i].attempt > 0]
    free = [i for i in open_ if states[i].attempt == 0 and _parent_done(run, states[i], done)]
    return tuple(sorted([*begun, *free][: max(1, run.parallelism)])) or (len(states) - 1,)


def _parent_done(run: TrainingRun, state: InstanceState, done: set[tuple[str, int]]) -> bool:
    parent = run.parent_of(state.instance)
    return parent is None or (parent.stage.name, parent.seed) in done


def read_instance_states(run: TrainingRun, observed: ObservedRun) -> tuple[InstanceState, ...]:
    """Returns the state of every stage instance, in the order in which they are trained."""
    return tuple(_state(run, observed, instance) for instance in run.instances)


def _state(run: TrainingRun, observed: ObservedRun, instance: StageInstance) -> InstanceState:
    key = (instance.stage.name, instance.seed)
    entry = observed.status.instance(*key) or InstanceStatus(name=key[0], seed=key[1])
    pods = tuple(p for p in observed.pods if p.role == Role.TRAIN and (p.stage, p.seed) == key)
    bucket = next((b for b in observed.instances if (b.stage, b.seed) == key), None)
    held = RestartState() if entry.restart_state is None or observed.counters_disproved else entry.restart_state
    recorded = recorded_backoff(observed.restart_record if observed.by_records else None, *key)
    backoff = max(read_backoff(held), recorded, key=lambda each: each.failed_attempt)
    claimed = entry.attempt if not observed.counters_disproved else 0
    ended = max(held.ended_attempt, recorded.failed_attempt)
    attempt = max([claimed, ended, *(p.attempt for p in pods)])
    ended = max(ended, attempt - 1)  # an attempt begins when the one before has ended, by a suspension too
    if bucket is not None and bucket.highest_attempt > attempt:
        # It has written to the bucket, and nothing of it is left here: it is over.
        attempt = ended = bucket.highest_attempt
    group = tuple(pod for pod in pods if pod.attempt == attempt)
    nodes, nodes_known = _nodes(run, attempt, group, bucket)
    created = (held.created and attempt == claimed) or (attempt > 0 and len({p.rank for p in group}) >= nodes)
    state = InstanceState(
        instance=instance,
        result="Succeeded" if entry.phase == "Succeeded" else "",
        attempt=attempt,
        ended=ended,
        created=created,
        nodes=nodes,
        nodes_known=nodes_known,
        attempt_time=held.attempt_time,
        backoff=backoff,
        start_time=entry.start_time,
        completion_time=entry.completion_time,
        best=entry.best,
        resumed_from_step=entry.resumed_from_step,
        known_progress=entry.progress or ProgressStatus(epochs=instance.stage.epochs),
        known_checkpoint=entry.checkpoint,
        pods=pods,
        bucket=bucket,
    )
    return _with_result(state, observed)


def _nodes(
    run: TrainingRun, attempt: int, group: tuple[ObservedPod, ...], bucket: ObservedInstance | None
) -> tuple[int, bool]:
    """How many pods an attempt has: as they themselves have it, else as the operator recorded it; and if that is known.

    Of pods that do not agree, those count that the spec does not want: they are no group, and are replaced.
    """
    if group:
        return max({pod.nodes for pod in group if pod.nodes} - {run.nodes}, default=run.nodes), True
    started = bucket.started if bucket is not None else None
    nodes = started.nodes or run.nodes if started is not None else run.nodes
    return nodes, attempt == 0 or (started is not None and started.attempt >= attempt)


def _is_disproved(state: InstanceState, observed: ObservedRun) -> bool:
    """Whether the instance has succeeded in the status alone, without a checkpoint or record of the operator."""
    if state.bucket is None or observed.store_error or observed.profile_error:
        return False
    return not state.final_committed and not state.bucket.done


def _with_result(state: InstanceState, observed: ObservedRun) -> InstanceState:
    if state.succeeded and not _is_disproved(state, observed):
        return replace(state, ended=state.attempt)  # whoever wrote it: what its pods hold is free
    if state.final_committed and all(p.terminal or p.is_past_deadline(observed.now) for p in state.pods):
        return replace(
            state,
            result="Succeeded",
            ended=state.attempt,
            completion_time=state.completion_time or format_time(observed.now),
        )
    return replace(state, result="")


@dataclass(frozen=True)
class Step:
    """What the decision changes; the status is made from a RunView and this."""

    phase: RunPhase
    reason: str
    states: tuple[InstanceState, ...]
    restarts: Restarts
    last_failure: AttemptFailure | None
    start_time: str | None
    message: str = ""  # of the Failed condition, or why the run waits
    deletes: tuple[PodToDelete, ...] = ()
    claim_deletes: tuple[ClaimToDelete, ...] = ()
    annotates: tuple[PodToAnnotate, ...] = ()
    creates: tuple[JsonObject, ...] = field(default=())
    tries: tuple[JsonObject, ...] = ()
    claim: bool = False
    blocked: bool = False  # no attempt may begin, for `reason`
    requeue_after_s: float | None = None
    phases: dict[int, RunPhase] = field(default_factory=dict)  # of the instances that are trained now, by position

    def phase_of(self, position: int) -> RunPhase:
        """Returns where one stage instance stands; the run shows the phase of the one that is furthest."""
        state = self.states[position]
        if state.result:
            return RunPhase(state.result)
        return self.phases.get(position, self.phase) if state.attempt > 0 else RunPhase.PENDING

    def wake(self, after_s: float) -> "Step":
        """Returns the step with another pass after so many seconds at the latest, and not at once."""
        after_s = max(SOON_S, after_s)
        if self.requeue_after_s is not None and self.requeue_after_s <= after_s:
            return self
        return replace(self, requeue_after_s=after_s)


# Of several instances that are trained at once, the run shows the phase of the one that is furthest.
_FURTHEST = tuple(
    RunPhase(phase) for phase in ("Running", "Starting", "Recovering", "Checkpointing", "Caching", "Pending")
)


def join_steps(first: Step, second: Step) -> Step:
    """Returns both steps in one; `second` was decided on what `first` had changed."""
    shown = first if _FURTHEST.index(first.phase) <= _FURTHEST.index(second.phase) else second
    waits = [s for s in (first.requeue_after_s, second.requeue_after_s) if s is not None]
    return replace(
        second,
        phase=shown.phase,
        reason=shown.reason,
        message=shown.message,
        blocked=shown.blocked,
        deletes=tuple({d.uid: d for d in (*first.deletes, *second.deletes)}.values()),
        claim_deletes=tuple({d.uid: d for d in (*first.claim_deletes, *second.claim_deletes)}.values()),
        creates=tuple({(c["kind"], c["metadata"]["name"]): c for c in (*first.creates, *second.creates)}.values()),
        annotates=(*first.annotates, *second.annotates),
        claim=first.claim or second.claim,
        requeue_after_s=min(waits, default=None),
    )
