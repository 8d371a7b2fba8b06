"""Events, read off the difference between two statuses, so that a pass that changes nothing says nothing. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from lead_operator.decisions.condition_events import condition_events
from lead_operator.decisions.conditions import find_condition
from lead_operator.decisions.plan import ClaimToDelete, EventNote
from lead_operator.decisions.restarts import NO_CHECKPOINT
from lead_operator.decisions.run_step import FINISHING
from lead_operator.names import CachePhase, Condition, RunPhase

MAX_MESSAGE = 1000  # the API takes 1024
MAX_ADVICE = 4  # lines of one change
RESUMED = EventNote("Normal", "Resumed", "spec.suspend is false again: the run goes on from its newest checkpoint")


def run_events(before: dict[str, Any], after: dict[str, Any]) -> tuple[EventNote, ...]:
    """Returns what a person should hear of a TrainingRun's change."""
    notes = [
        *_run_failure(before, after),
        *_dataset(before, after),
        *_stages(before, after),
        *_advice(before, after),
        *_resumed(before, after),
        *_run_phase(before, after),
    ]
    return one_a_reason([*notes, *_untold(notes, before, after)])


def caches_lost(claims: Iterable[ClaimToDelete]) -> tuple[EventNote, ...]:
    """Returns what a person should hear of session caches that are made anew."""
    return tuple(EventNote("Warning", "SessionCacheLost", claim.why) for claim in claims)


def cache_events(before: dict[str, Any], after: dict[str, Any]) -> tuple[EventNote, ...]:
    """Returns what a person should hear of a DatasetCache's change."""
    notes = []
    failure = after.get("lastFailure") or {}
    if failure and failure != before.get("lastFailure"):
        notes.append(cache_failure(failure))
    if after.get("phase") != before.get("phase"):
        notes.append(cache_phase(after))
    return one_a_reason([*notes, *_untold(notes, before, after)])


def cache_failure(failure: dict[str, Any]) -> EventNote:
    """Returns why a build pod has ended; `failure` is status.lastFailure."""
    return EventNote("Warning", str(failure.get("reason")), str(failure.get("message")))


def cache_phase(status: dict[str, Any]) -> EventNote:
    """Returns the phase that a DatasetCache has come to."""
    message = _condition_message(status, Condition.FAILED) or _condition_message(status, Condition.READY)
    kind = "Warning" if status.get("phase") == CachePhase.FAILED else "Normal"
    return EventNote(kind, str(status.get("phase")), message)


def _untold(notes: list[EventNote], before: dict[str, Any], after: dict[str, Any]) -> list[EventNote]:
    """What conditions say and none of the notes does."""
    reasons, messages = {note.reason for note in notes}, {note.message for note in notes}
    found: dict[str, EventNote] = {}
    for note in condition_events(before, after):
        if note.reason not in reasons and note.message not in messages:
            found.setdefault(note.reason, note)
    return list(found.values())


def one_a_reason(notes: Iterable[EventNote]) -> tuple[EventNote, ...]:
    """Joins what is to be said of one reason: a second event of it would wait for a minute, and give way to a third."""
    joined: dict[str, EventNote] = {}
    for note in notes:
        first = joined.get(note.reason)
        joined[note.reason] = replace(first, message=f"{first.message}; {note.message}") if first else note
    return tuple(replace(note, message=note.message[:MAX_MESSAGE]) for note in joined.values())


def _run_failure(before: dict[str, Any], after: dict[str, Any]) -> list[EventNote]:
    failure = after.get("lastFailure") or {}
    return [] if not failure or failure == before.get("lastFailure") else [run_failure(failure)]


def run_failure(failure: dict[str, Any]) -> EventNote:
    """Returns why an attempt has ended; `failure` is status.lastFailure."""
    text = f"attempt {failure.get('attempt')} of stage {failure.get('stage')}: {failure.get('message')}"
    return EventNote("Warning", str(failure.get("reason")), text)


def _dataset(before: dict[str, Any], after: dict[str, Any]) -> list[EventNote]:
    old, new = find_condition(before, Condition.DATASET_READY) or {}, find_condition(after, Condition.DATASET_READY)
    if new is None or new.get("reason") == old.get("reason"):
        return []
    if not old and new["status"] == "True":
        return []  # the run never waited for its data: that its pods are made tells enough
    kind = "Normal" if new["status"] == "True" or new["reason"] == "CacheBuilding" else "Warning"
    return [EventNote(kind, new["reason"], new["message"])]


def _stages(before: dict[str, Any], after: dict[str, Any]) -> list[EventNote]:
    old = {(e["name"], e["seed"]): e for e in before.get("stages") or []}
    notes = []
    for entry in after.get("stages") or []:
        was = old.get((entry["name"], entry["seed"]), {})
        attempt = entry.get("attempt", 0)
        if attempt > was.get("attempt", 0) and (before or attempt == 1):
            notes.append(stage_begun(entry))
        if entry.get("checkpoint") and not was.get("checkpoint"):
            notes.append(checkpoint_saved(entry))
        if entry.get("phase") == "Succeeded" and was.get("phase") != "Succeeded" and before:
            notes.append(stage_completed(entry))
    return notes


def stage_begun(entry: dict[str, Any]) -> EventNote:
    """Returns that the newest attempt of a stage instance has begun; in the same words for as long as it lasts."""
    attempt, book = entry["attempt"], entry.get("book") or {}
    step = book.get("atStep", NO_CHECKPOINT) if book.get("failedAttempt") == attempt - 1 else NO_CHECKPOINT
    begins = f", from the checkpoint of step {step}" if step != NO_CHECKPOINT else ""
    text = f"attempt {attempt} of stage {entry['name']}, seed {entry['seed']}{begins}"
    return EventNote("Normal", "PodsCreated" if attempt == 1 else "Restarting", text)


def checkpoint_saved(entry: dict[str, Any]) -> EventNote:
    """Returns that a stage instance has a checkpoint."""
    text = f"stage {entry['name']}, seed {entry['seed']}: {entry['checkpoint']}"
    return EventNote("Normal", "CheckpointSaved", text)


def stage_completed(entry: dict[str, Any]) -> EventNote:
    """Returns that a stage instance has succeeded."""
    text = f"stage {entry['name']}, seed {entry['seed']}: {entry.get('checkpoint', 'its checkpoint is committed')}"
    return EventNote("Normal", "StageCompleted", text)


def _advice(before: dict[str, Any], after: dict[str, Any]) -> list[EventNote]:
    """What the trainer's watch rules say and have not said before, one line each."""
    new = find_condition(after, Condition.ADVISORY)
    if new is None:
        return []
    said = str((find_condition(before, Condition.ADVISORY) or {}).get("message", "")).splitlines()
    lines = [line for line in str(new["message"]).splitlines() if line not in said]
    return [EventNote("Warning", "Advisory", line) for line in lines[:MAX_ADVICE]]


def _resumed(before: dict[str, Any], after: dict[str, Any]) -> list[EventNote]:
    old, new = (find_condition(status, Condition.SUSPENDED) or {} for status in (before, after))
    over = (RunPhase.SUCCEEDED, RunPhase.FAILED)
    goes_on = old.get("status") == "True" and new.get("status") == "False" and after.get("phase") not in over
    return [RESUMED] if goes_on else []


def _run_phase(before: dict[str, Any], after: dict[str, Any]) -> list[EventNote]:
    return [] if after.get("phase") == before.get("phase") else run_phase(after)


def run_phase(after: dict[str, Any]) -> list[EventNote]:
    """Returns the phase that a TrainingRun has come to; none where other events tell it."""
    phase = after.get("phase")
    stage = (after.get("stage") or {}).get("text", "")
    if phase == RunPhase.RUNNING and after.get("reason") == FINISHING:
        return []  # it ended before it was seen to train: StageCompleted or Succeeded follows
    if phase == RunPhase.RUNNING:
        return [EventNote("Normal", "Started", f"stage {stage} trains")]
    if phase == RunPhase.SUSPENDED:
        return [EventNote("Normal", "Suspended", _condition_message(after, Condition.SUSPENDED))]
    if phase == RunPhase.SUCCEEDED:
        return [EventNote("Normal", "Succeeded", _condition_message(after, Condition.SUCCEEDED))]
    if phase == RunPhase.FAILED:
        return [EventNote("Warning", "Failed", _condition_message(after, Condition.FAILED))]
    return []


def _condition_message(status: dict[str, Any], kind: Condition) -> str:
    condition = find_condition(status, kind)
    return str(condition["message"]) if condition else ""
