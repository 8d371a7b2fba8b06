"""What one decision about a TrainingRun changes; made by `training_run_plan`, told by `run_status`."""

from dataclasses import dataclass, field, replace

from lead_operator.decisions.plan import ClaimToDelete, PodToAnnotate, PodToDelete
from lead_operator.decisions.training_run.instance_state import InstanceState
from lead_operator.decisions.training_run.restarts import Restarts
from lead_operator.names import RunPhase
from lead_operator.resources.status_format import JsonObject
from lead_operator.resources.training_run_status import AttemptFailure

SOON_S = 1.0
CHECKPOINT_MISSING = "CheckpointMissing"
FINISHING = "Finishing"
PODS_LOAD = "Loading"  # all pods run, and rank 0 has not reported a step yet


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
        """Returns the step with another look after so many seconds at the latest, and not at once."""
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
    told = first if _FURTHEST.index(first.phase) <= _FURTHEST.index(second.phase) else second
    waits = [s for s in (first.requeue_after_s, second.requeue_after_s) if s is not None]
    return replace(
        second,
        phase=told.phase,
        reason=told.reason,
        message=told.message,
        blocked=told.blocked,
        deletes=tuple({d.uid: d for d in (*first.deletes, *second.deletes)}.values()),
        claim_deletes=tuple({d.uid: d for d in (*first.claim_deletes, *second.claim_deletes)}.values()),
        creates=tuple({(c["kind"], c["metadata"]["name"]): c for c in (*first.creates, *second.creates)}.values()),
        annotates=(*first.annotates, *second.annotates),
        claim=first.claim or second.claim,
        requeue_after_s=min(waits, default=None),
    )
