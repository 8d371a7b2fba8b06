"""Events that an operator may have died before sending: what a status reports as reached, in the words of then. Pure.

Sent by `cluster.reconcile` when a process meets a resource for the first time. An event's name is a function of its
words, so that one that is there is not written again; the API server keeps events for an hour, and older ends are news
to nobody. Of what happens again and again the newest is sent: a later event of its kind tells that it happened before.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from lead_operator.decisions.conditions import find_condition
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
from lead_operator.decisions.figures import parse_time
from lead_operator.decisions.plan import EventNote
from lead_operator.names import CachePhase, Condition, RunPhase

KEPT = timedelta(minutes=55)

_RUN_PHASES = {  # the condition that has changed with the phase
    RunPhase.RUNNING: Condition.PROGRESSING,
    RunPhase.SUSPENDED: Condition.SUSPENDED,
    RunPhase.SUCCEEDED: Condition.SUCCEEDED,
    RunPhase.FAILED: Condition.FAILED,
}
_CACHE_ENDS = {CachePhase.READY: Condition.READY, CachePhase.FAILED: Condition.FAILED}

Missed = tuple[EventNote, datetime]  # and when it happened


def missed_run_events(status: dict[str, Any], now: datetime) -> Iterator[Missed]:
    """Yields each event of a run's course that may be missing, in the order in which passes send them."""
    yield from _failure(status, run_failure, now)
    begun, saved, completed = (defaultdict[str, list[EventNote]](list) for _ in range(3))
    for entry in status.get("stages") or []:
        book, attempt = entry.get("book") or {}, int(entry.get("attempt") or 0)
        if attempt == 1 or attempt > int(book.get("endedAttempt") or 0):  # the words of an attempt end with it
            begun[str(book.get("attemptTime"))].append(stage_begun(entry))
        if entry.get("checkpoint"):
            saved[_saved_at(status, entry)].append(checkpoint_saved(entry))
        if entry.get("phase") == RunPhase.SUCCEEDED:
            completed[str(entry.get("completionTime"))].append(stage_completed(entry))
    for by_time in (begun, saved, completed):  # what one pass has found is one event
        for time, notes in by_time.items():
            yield from _recent(one_a_reason(notes), time, now)
    if (resumed_at := _resumed_at(status)) is not None:
        yield from _recent([RESUMED], resumed_at, now)
    yield from _phase(status, _RUN_PHASES, run_phase(status), now)


def missed_cache_events(status: dict[str, Any], now: datetime) -> Iterator[Missed]:
    """Yields each event of a build's course that may be missing."""
    yield from _failure(status, cache_failure, now)
    yield from _phase(status, _CACHE_ENDS, [cache_phase(status)], now)


def _failure(status: dict[str, Any], note: Callable[[dict[str, Any]], EventNote], now: datetime) -> Iterator[Missed]:
    if failure := status.get("lastFailure"):
        yield from _recent(one_a_reason([note(failure)]), failure.get("time"), now)


def _saved_at(status: dict[str, Any], entry: dict[str, Any]) -> str:
    """When the checkpoint of a stage instance was saved; not before the instance began, where nothing else is known."""
    shown = status.get("checkpoint") or {}
    if shown.get("uri") == entry["checkpoint"] and shown.get("savedAt"):
        return str(shown["savedAt"])
    return str(entry.get("completionTime") or entry.get("startTime"))


def _resumed_at(status: dict[str, Any]) -> str | None:
    """When a suspension ended; None where there was none: then the condition is as old as the status."""
    told = find_condition(status, Condition.SUSPENDED) or {}
    times = [str(each.get("lastTransitionTime")) for each in status.get("conditions") or [] if each is not told]
    changed = str(told.get("lastTransitionTime"))
    if told.get("status") != "False" or told.get("reason") != "NotAsked" or changed <= min(times, default=changed):
        return None
    return changed


def _phase(
    status: dict[str, Any], phases: dict[Any, Condition], notes: list[EventNote], now: datetime
) -> Iterator[Missed]:
    if (kind := phases.get(status.get("phase"))) is not None:
        told = find_condition(status, kind) or {}
        yield from _recent(one_a_reason(notes), told.get("lastTransitionTime"), now)


def _recent(notes: Iterable[EventNote], time: object, now: datetime) -> Iterator[Missed]:
    happened = parse_time(time)
    if happened is not None and now - KEPT < happened:
        yield from ((note, happened) for note in notes)
