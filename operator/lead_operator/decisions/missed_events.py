"""Events that an operator may have died before sending: what a status reports as reached, in the words of then. Pure.

Sent by `cluster.reconcile` when a process meets a resource for the first time. An event's name is a function of its
words, so that one that is there is not written again; the API server keeps events for an hour, and older ends are news
to nobody.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from lead_operator.decisions.conditions import find_condition
from lead_operator.decisions.events import cache_phase, one_a_reason, run_phase, stage_begun, stage_completed
from lead_operator.decisions.figures import parse_time
from lead_operator.decisions.plan import EventNote
from lead_operator.names import CachePhase, Condition, RunPhase

KEPT = timedelta(minutes=55)

_RUN_ENDS = {RunPhase.SUCCEEDED: Condition.SUCCEEDED, RunPhase.FAILED: Condition.FAILED}
_CACHE_ENDS = {CachePhase.READY: Condition.READY, CachePhase.FAILED: Condition.FAILED}

Missed = tuple[EventNote, datetime]  # and when it happened


def missed_run_events(status: dict[str, Any], now: datetime) -> Iterator[Missed]:
    """Yields each event of a run's course that may be missing."""
    begun, completed = defaultdict[str, list[EventNote]](list), defaultdict[str, list[EventNote]](list)
    for entry in status.get("stages") or []:
        if entry.get("attempt") == 1:
            begun[str((entry.get("book") or {}).get("attemptTime"))].append(stage_begun(entry))
        if entry.get("phase") == RunPhase.SUCCEEDED:
            completed[str(entry.get("completionTime"))].append(stage_completed(entry))
    for by_time in (begun, completed):  # what one pass has found is one event
        for time, notes in by_time.items():
            yield from _recent(one_a_reason(notes), time, now)
    yield from _end(status, _RUN_ENDS, run_phase(status), now)


def missed_cache_events(status: dict[str, Any], now: datetime) -> Iterator[Missed]:
    """Yields the event of a build's end, if it may be missing."""
    yield from _end(status, _CACHE_ENDS, [cache_phase(status)], now)


def _end(status: dict[str, Any], ends: dict[Any, Condition], notes: list[EventNote], now: datetime) -> Iterator[Missed]:
    if (kind := ends.get(status.get("phase"))) is not None:
        told = find_condition(status, kind) or {}
        yield from _recent(one_a_reason(notes), told.get("lastTransitionTime"), now)


def _recent(notes: Iterable[EventNote], time: object, now: datetime) -> Iterator[Missed]:
    happened = parse_time(time)
    if happened is not None and now - KEPT < happened:
        yield from ((note, happened) for note in notes)
