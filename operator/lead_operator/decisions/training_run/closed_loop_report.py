"""How the closed loop shows: its block of the status, its condition, its column and its events. Pure."""

from dataclasses import replace
from datetime import datetime

from lead_operator.decisions.conditions import update_conditions
from lead_operator.decisions.plan import EventNote
from lead_operator.decisions.training_run.closed_loop import ClosedLoopStep
from lead_operator.decisions.training_run.driven_results import whose
from lead_operator.names import Condition
from lead_operator.resources.closed_loop_status import ClosedLoopStatus, DriveStatus
from lead_operator.resources.status_format import ConditionStatus
from lead_operator.resources.training_run_status import RunDisplay, TrainingRunStatus

_BEFORE = (Condition.SUSPENDED, Condition.SUCCEEDED, Condition.FAILED)  # what stands behind it in the list


def report_closed_loop(
    status: TrainingRunStatus, step: ClosedLoopStep, before: TrainingRunStatus, now: datetime
) -> TrainingRunStatus:
    """Returns the status with what a step of the closed loop came to; `before` is the status as it was read."""
    findings = [step.finding] if step.finding is not None else []
    generation = status.observed_generation or 0
    own = update_conditions(before.conditions, findings, generation=generation, now=now)
    others = [each for each in status.conditions if each.type != Condition.CLOSED_LOOP]
    if step.status is None and not own and len(others) == len(status.conditions) and status.closed_loop is None:
        return status
    behind = next((i for i, each in enumerate(others) if each.type in _BEFORE), len(others))
    display = replace(status.display or RunDisplay(), closed_loop=_column(step.status))
    conditions: tuple[ConditionStatus, ...] = (*others[:behind], *own, *others[behind:])
    return replace(status, closed_loop=step.status, conditions=conditions, display=display)


def closed_loop_events(before: ClosedLoopStatus | None, after: ClosedLoopStatus | None) -> list[EventNote]:
    """Returns what has begun and what is done; failures and regressions are the condition's."""
    old, new = before or ClosedLoopStatus(), after or ClosedLoopStatus()
    notes, was, drive = list[EventNote](), old.drive or DriveStatus(), new.drive
    if drive is not None and drive.attempt > was.attempt:
        text = f"attempt {drive.attempt}: {whose(drive.stage, drive.seed, drive.epoch)}"
        notes.append(EventNote("Normal", "ClosedLoopStarted", text))
    if new.attempt is not None and new.attempt != old.attempt:
        text = f"{whose(new.stage, new.seed, new.epoch)}: driving score {new.driving_score or 'unknown'} %; {new.uri}"
        notes.append(EventNote("Normal", "ClosedLoopDone", text))
    return notes


def _column(status: ClosedLoopStatus | None) -> str:
    if status is None or status.epoch is None:
        return ""
    return f"{status.driving_score or '-'}{'%' if status.driving_score else ''} (epoch {status.epoch})"
