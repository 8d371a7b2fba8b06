"""What one decision about a TrainingRun changes; made by `training_run_plan`, told by `run_status`."""

from dataclasses import dataclass, field
from typing import Any

from lead_operator.decisions.instance_state import InstanceState
from lead_operator.decisions.plan import PodToDelete
from lead_operator.decisions.restarts import Restarts
from lead_operator.names import RunPhase


@dataclass(frozen=True)
class Step:
    """What the decision changes; the status is made from a RunView and this."""

    phase: RunPhase
    reason: str
    states: tuple[InstanceState, ...]
    restarts: Restarts
    last_failure: dict[str, Any]
    start_time: str | None
    message: str = ""  # of the Failed condition, or why the run waits
    deletes: tuple[PodToDelete, ...] = ()
    creates: tuple[dict[str, Any], ...] = field(default=())
    claim: bool = False
    requeue_after_s: float | None = None
