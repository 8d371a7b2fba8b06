"""Events that an operator may have died before sending: what a status reports as reached, with the original text. Pure.

Sent by `controllers.reconciler` when a process meets a resource for the first time. An event's name is a function of
its text, so that an existing one is not written again; the API server keeps events for an hour, and older ends are
not news. Of repeated events only the newest is sent: a later event of its kind implies that it happened
before.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from lead_operator.decisions.events import (
    RESUMED,
    cache_failure,
    cache_phase,
    checkpoint_saved,
    one_a_reason,
    run_failure,
    run_phase,
    stage_begun,
    stage_completed,
)
from lead_operator.decisions.formatting import parse_time
from lead_operator.decisions.plan import EventNote
from lead_operator.names import CachePhase, Condition, RunPhase
from lead_operator.resources.dataset_cache_status import DatasetCacheStatus
from lead_operator.resources.status_format import FailureStatus, ResourceStatus
from lead_operator.resources.training_run_status import InstanceStatus, TrainingRunStatus

KEPT = timedelta(minutes=55)

_RUN_PHASES: dict[str, Condition] = {  # the condition that has changed with the phase
    RunPhase.RUNNING: Condition.PROGRESSING,
    RunPhase.SUSPENDED: Condition.SUSPENDED,
    RunPhase.SUCCEEDED: Condition.SUCCEEDED,
    RunPhase.FAILED: Condition.FAILED,
}
_CACHE_ENDS: dict[str, Condition] = {CachePhase.READY: Condition.READY, CachePhase.FAILED: Condition.FAILED}

Missed = tuple[EventNote, datetime]  # and when it happened


def missed_run_events(status: TrainingRunStatus, now: datetime) -> Iterator[Missed]:
    """Yields each event of a run's course that may be missing, in the order in which passes send them."""
    if status.last_failure is not None:
        yield from _failure(status.last_failure, run_failure(status.last_failure), now)
    begun, saved, completed = (defaultdict[str, list[EventNote]](list) for _ in range(3))
    for entry in status.stages:
        if entry.attempt == 1 or entry.attempt > entry.ended_attempt:  # the messages of an attempt end with it
            begun[str(entry.restart_state and entry.restart_state.attempt_time)].append(stage_begun(entry))
        if entry.checkpoint_uri:
            saved[_saved_at(entry)].append(checkpoint_saved(entry))
        if entry.phase == RunPhase.SUCCEEDED:
            completed[str(entry.completion_time)].append(stage_completed(entry))
    for by_time in (begun, saved, completed):  # what one pass has found is one event
        for time, notes in by_time.items():
            yield from _recent(one_a_reason(notes), time, now)
    if (resumed_at := _resumed_at(status)) is not None:
        yield from _recent([RESUMED], resumed_at, now)
    yield from _phase(status, _RUN_PHASES, run_phase(status), now)


def missed_cache_events(status: DatasetCacheStatus, now: datetime) -> Iterator[Missed]:
    """Yields each event of a build's course that may be missing."""
    if status.last_failure is not None:
        yield from _failure(status.last_failure, cache_failure(status.last_failure), now)
    yield from _phase(status, _CACHE_ENDS, [cache_phase(status)], now)


def _failure(failure: FailureStatus, note: EventNote, now: datetime) -> Iterator[Missed]:
    yield from _recent(one_a_reason([note]), failure.time, now)


def _saved_at(entry: InstanceStatus) -> str:
    """When the checkpoint of a stage instance was saved; not before the instance began, where nothing else is known."""
    saved_at = entry.checkpoint.saved_at if entry.checkpoint else None
    return str(saved_at or entry.completion_time or entry.start_time)


def _resumed_at(status: TrainingRunStatus) -> str | None:
    """When a suspension ended; None where there was none: then the condition is as old as the status."""
    condition = status.condition(Condition.SUSPENDED)
    if condition is None or condition.status != "False" or condition.reason != "NotAsked":
        return None
    changed = condition.last_transition_time
    others = [each.last_transition_time for each in status.conditions if each is not condition]
    return changed if changed > min(others, default=changed) else None


def _phase(
    status: ResourceStatus, phases: Mapping[str, Condition], notes: list[EventNote], now: datetime
) -> Iterator[Missed]:
    condition = status.condition(phases[status.phase]) if status.phase in phases else None
    if condition is not None:
        yield from _recent(one_a_reason(notes), condition.last_transition_time, now)


def _recent(notes: Iterable[EventNote], time: object, now: datetime) -> Iterator[Missed]:
    happened = parse_time(time)
    if happened is not None and now - KEPT < happened:
        yield from ((note, happened) for note in notes)
