"""Whether what a status reports of restarts and ended attempts is what the operator has recorded. Pure.

A status is output. Who raises its counters would end the run at the next failure, who lowers them would refill a
budget, and who writes that an attempt has ended would have its group replaced. The restart state below `control/`
decides, with the pods: it is written before the status reports it. Of a run that has ended the counters steer nothing.
A status may be ahead of the records by what happened during a store outage, which it marks by StorageAvailable=False,
and behind them by failures of attempts that it still reports as active: an operator that died between the two writes
records them again, with the same numbers.
"""

from dataclasses import replace

from lead_operator.decisions.formatting import parse_time, seconds_since
from lead_operator.decisions.observed import ObservedInstance, ObservedRun
from lead_operator.decisions.training_run.end import reported_end
from lead_operator.decisions.training_run.restarts import (
    Backoff,
    Restarts,
    read_backoff,
    read_restarts,
    recorded_backoff,
)
from lead_operator.decisions.training_run.view import SUSPEND_REQUESTED
from lead_operator.names import Condition
from lead_operator.resources.training_run import TrainingRun
from lead_operator.resources.training_run_status import InstanceStatus, TrainingRunStatus

SAME_FAILURE_S = 120.0  # between the times that two operators give it, one of which stood still beyond its lease
Counters = tuple[object, ...]


def reported_counters(status: TrainingRunStatus) -> Counters:
    """Returns all that a status reports of restarts and ends, to be compared with what was decided."""
    entries = [
        (entry.key, entry.attempt, entry.ended_attempt, read_backoff(entry.restart_state)) for entry in status.stages
    ]
    return (status.restarts and read_restarts(status.restarts, None, ()), *entries)


def find_contradiction(run: TrainingRun, observed: ObservedRun) -> str:
    """Returns what a status reports and the records do not hold, as text; empty if nothing."""
    over = observed.ended is not None or (reported_end(observed.status) is not None and not observed.end_disproved)
    if over or observed.erased or observed.store_error or observed.profile_error:
        return ""
    entries = [entry for entry in observed.status.stages if entry.attempt > 0]
    if unknown := next(filter(None, (_of_attempts(observed, entry) for entry in entries)), ""):
        return unknown
    if not observed.status.holds(Condition.STORAGE_AVAILABLE):
        return ""
    unreported = sum(_is_unreported(entry, observed) for entry in entries)
    reported = read_restarts(observed.status.restarts, None, ())
    recorded = read_restarts(None, observed.restart_record, ())
    replaced = sum(entry.attempt - 1 for entry in entries)
    # Without a record suspensions alone may have ended attempts: a status erased in between counts some of them.
    suspended = (
        observed.restart_record is None
        and reported == Restarts(voluntary=reported.voluntary)
        and reported.voluntary <= replaced
    )
    if reported != recorded and not suspended and recorded.total != reported.total + unreported:
        return f"{_as_text(reported)}, but the operator's records hold {_as_text(recorded)}"
    return next(filter(None, (_of_ends(run, observed, entry) for entry in entries)), "")


def _of_attempts(observed: ObservedRun, entry: InstanceStatus) -> str:
    """Numbers that no outage explains: an attempt begins only while the store answers, and after the one before."""
    name, seed, attempt, ended = entry.name, entry.seed, entry.attempt, entry.ended_attempt
    which = f"stage {name}, seed {seed}"
    bucket = next((b for b in observed.instances if (b.stage, b.seed) == (name, seed)), None)
    newest = _newest_known(observed, bucket, name, seed)
    if attempt > newest:
        return f"attempt {attempt} of {which}, but no attempt above {newest} was started"
    if attempt - ended not in (0, 1):
        return f"attempt {ended} of {which} as the last that has ended, and attempt {attempt} as the newest"
    return ""


def _of_ends(run: TrainingRun, observed: ObservedRun, entry: InstanceStatus) -> str:
    name, seed, attempt, ended = entry.name, entry.seed, entry.attempt, entry.ended_attempt
    which = f"stage {name}, seed {seed}"
    if _is_unreported(entry, observed) or entry.phase == "Succeeded":
        return ""
    reported, recorded = read_backoff(entry.restart_state), recorded_backoff(observed.restart_record, name, seed)
    if not _is_one_failure(reported, recorded) or ended < recorded.failed_attempt:
        return f"{_ends(reported, ended)} of {which}, but the operator's records hold {_ends(recorded, ended)}"
    if ended == attempt > recorded.failed_attempt and not _was_suspended(run, observed):
        # One of a group that spec.nodes does not want any more has ended, and its deletion may be to come.
        alive = [p.name for p in observed.pods if (p.stage, p.seed, p.attempt) == (name, seed, attempt)
                 and not p.terminal and not p.deleting and p.nodes in (0, run.nodes)]  # fmt: skip
        return f"that attempt {attempt} of {which} has ended, but pod {alive[0]} is there" if alive else ""
    return ""


def _is_one_failure(reported: Backoff, recorded: Backoff) -> bool:
    """Whether two operators may have recorded one failure so: one that was paused dates and names it otherwise."""
    moment = parse_time(recorded.failed_at)
    apart_s = None if moment is None else seconds_since(reported.failed_at, moment)
    near = reported.failed_at == recorded.failed_at or (apart_s is not None and abs(apart_s) <= SAME_FAILURE_S)
    return near and replace(reported, failed_at=None, reason="") == replace(recorded, failed_at=None, reason="")


def _newest_known(observed: ObservedRun, bucket: ObservedInstance | None, name: str, seed: int) -> int:
    """The highest attempt that somebody else than the status knows of; the newest may not be recorded yet."""
    pods = [p.attempt for p in observed.pods if (p.stage, p.seed) == (name, seed)]
    known = (bucket.recorded_attempt + 1, bucket.fence) if bucket is not None else (1,)
    return max(*known, *pods, 0)


def _is_unreported(entry: InstanceStatus, observed: ObservedRun) -> bool:
    """Whether a failure is recorded of an attempt that the status still reports as active."""
    return recorded_backoff(observed.restart_record, *entry.key).failed_attempt == entry.attempt > entry.ended_attempt


def _was_suspended(run: TrainingRun, observed: ObservedRun) -> bool:
    reported = observed.status.condition(Condition.SUSPENDED)
    return run.suspend or (reported is not None and (reported.status == "True" or reported.reason == SUSPEND_REQUESTED))


def _as_text(restarts: Restarts) -> str:
    return (
        f"{restarts.total} restarts ({restarts.program} after program errors, {restarts.infrastructure} after "
        "infrastructure failures)"
    )


def _ends(backoff: Backoff, ended: int) -> str:
    return (
        f"{backoff.ends} ends in a row at step {backoff.at_step}, the last of attempt {backoff.failed_attempt or ended}"
    )
