"""Events from the difference between two statuses, so that a pass that changes nothing sends none. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from lead_operator.decisions.conditions import FINISHING, condition_events
from lead_operator.decisions.plan import MAX_EVENT_MESSAGE, ClaimToDelete, EventNote
from lead_operator.decisions.training_run.restarts import NO_CHECKPOINT, read_backoff
from lead_operator.names import CachePhase, Condition, RunPhase
from lead_operator.resources.dataset_cache_status import DatasetCacheStatus
from lead_operator.resources.status_format import FailureStatus, ResourceStatus
from lead_operator.resources.training_run_status import AttemptFailure, InstanceStatus, TrainingRunStatus

MAX_ADVICE = 4  # lines of one change
RESUMED = EventNote("Normal", "Resumed", "spec.suspend is false again: the run continues from its newest checkpoint")


def run_events(before: TrainingRunStatus, after: TrainingRunStatus) -> tuple[EventNote, ...]:
    """Returns the events of a TrainingRun's change."""
    notes = [
        *_run_failure(before, after),
        *_dataset(before, after),
        *_stages(before, after),
        *_advice(before, after),
        *_resumed(before, after),
        *_run_phase(before, after),
    ]
    return one_a_reason([*notes, *_unreported(notes, before, after)])


def caches_lost(claims: Iterable[ClaimToDelete]) -> tuple[EventNote, ...]:
    """Returns the events of session caches that are recreated."""
    return tuple(EventNote("Warning", "SessionCacheLost", claim.why) for claim in claims)


def cache_events(before: DatasetCacheStatus, after: DatasetCacheStatus) -> tuple[EventNote, ...]:
    """Returns the events of a DatasetCache's change."""
    notes = []
    if after.last_failure is not None and after.last_failure != before.last_failure:
        notes.append(cache_failure(after.last_failure))
    if after.phase != before.phase:
        notes.append(cache_phase(after))
    return one_a_reason([*notes, *_unreported(notes, before, after)])


def cache_failure(failure: FailureStatus) -> EventNote:
    """Returns why a build pod has ended; `failure` is status.lastFailure."""
    return EventNote("Warning", failure.reason, failure.message)


def cache_phase(status: DatasetCacheStatus) -> EventNote:
    """Returns the phase that a DatasetCache has come to."""
    if status.phase == CachePhase.FAILED:
        return EventNote("Warning", status.phase, _condition_message(status, Condition.FAILED))
    return EventNote("Normal", status.phase, _condition_message(status, Condition.READY))


def _unreported(notes: list[EventNote], before: ResourceStatus, after: ResourceStatus) -> list[EventNote]:
    """Changes of conditions that none of the notes reports."""
    reasons, messages = {note.reason for note in notes}, {note.message for note in notes}
    found: dict[str, EventNote] = {}
    for note in condition_events(before, after):
        if note.reason not in reasons and note.message not in messages:
            found.setdefault(note.reason, note)
    return list(found.values())


def one_a_reason(notes: Iterable[EventNote]) -> tuple[EventNote, ...]:
    """Joins the messages of one reason: a second event would wait for a minute, and be replaced by a third."""
    joined: dict[str, EventNote] = {}
    for note in notes:
        first = joined.get(note.reason)
        joined[note.reason] = replace(first, message=f"{first.message}; {note.message}") if first else note
    return tuple(replace(note, message=note.message[:MAX_EVENT_MESSAGE]) for note in joined.values())


def _run_failure(before: TrainingRunStatus, after: TrainingRunStatus) -> list[EventNote]:
    failure = after.last_failure
    return [] if failure is None or failure == before.last_failure else [run_failure(failure)]


def run_failure(failure: AttemptFailure) -> EventNote:
    """Returns why an attempt has ended; `failure` is status.lastFailure."""
    text = f"attempt {failure.attempt} of stage {failure.stage}: {failure.message}"
    return EventNote("Warning", failure.reason, text)


def _dataset(before: TrainingRunStatus, after: TrainingRunStatus) -> list[EventNote]:
    old, new = before.condition(Condition.DATASET_READY), after.condition(Condition.DATASET_READY)
    if new is None or (old is not None and new.reason == old.reason):
        return []
    if old is None and new.status == "True":
        return []  # the run never waited for its data: the creation of its pods is enough
    kind = "Normal" if new.status == "True" or new.reason == "CacheBuilding" else "Warning"
    return [EventNote(kind, new.reason, new.message)]


def _stages(before: TrainingRunStatus, after: TrainingRunStatus) -> list[EventNote]:
    notes, erased = [], not before.stages
    for entry in after.stages:
        was = before.instance(*entry.key) or InstanceStatus(name=entry.name, seed=entry.seed)
        if entry.attempt > was.attempt and (entry.attempt == 1 or not erased):
            notes.append(stage_begun(entry))
        if entry.checkpoint_uri and not was.checkpoint_uri:
            notes.append(checkpoint_saved(entry))
        if entry.phase == "Succeeded" and was.phase != "Succeeded" and not erased:
            notes.append(stage_completed(entry))
    return notes


def stage_begun(entry: InstanceStatus) -> EventNote:
    """Returns the event that the newest attempt of a stage instance has started; with the same text while it lasts."""
    attempt, backoff = entry.attempt, read_backoff(entry.restart_state)
    known = backoff.failed_attempt == attempt - 1 and backoff.at_step != NO_CHECKPOINT
    begins = f", from the checkpoint of step {backoff.at_step}" if known else ""
    text = f"attempt {attempt} of stage {entry.name}, seed {entry.seed}{begins}"
    return EventNote("Normal", "PodsCreated" if attempt == 1 else "Restarting", text)


def checkpoint_saved(entry: InstanceStatus) -> EventNote:
    """Returns that a stage instance has a checkpoint."""
    text = f"stage {entry.name}, seed {entry.seed}: {entry.checkpoint_uri}"
    return EventNote("Normal", "CheckpointSaved", text)


def stage_completed(entry: InstanceStatus) -> EventNote:
    """Returns that a stage instance has succeeded."""
    text = f"stage {entry.name}, seed {entry.seed}: {entry.checkpoint_uri or 'its checkpoint is committed'}"
    return EventNote("Normal", "StageCompleted", text)


def _advice(before: TrainingRunStatus, after: TrainingRunStatus) -> list[EventNote]:
    """New advice of the trainer's watch rules, one line each."""
    old, new = before.condition(Condition.ADVISORY), after.condition(Condition.ADVISORY)
    if new is None:
        return []
    earlier = old.message.splitlines() if old is not None else []
    lines = [line for line in new.message.splitlines() if line not in earlier]
    return [EventNote("Warning", "Advisory", line) for line in lines[:MAX_ADVICE]]


def _resumed(before: TrainingRunStatus, after: TrainingRunStatus) -> list[EventNote]:
    new, over = after.condition(Condition.SUSPENDED), (RunPhase.SUCCEEDED, RunPhase.FAILED)
    asked = new is not None and new.status == "False"
    return [RESUMED] if asked and before.holds(Condition.SUSPENDED) and after.phase not in over else []


def _run_phase(before: TrainingRunStatus, after: TrainingRunStatus) -> list[EventNote]:
    return [] if after.phase == before.phase else run_phase(after)


def run_phase(after: TrainingRunStatus) -> list[EventNote]:
    """Returns the new phase of a TrainingRun; none where other events report it."""
    phase, stage = after.phase, after.display.stage if after.display else ""
    if phase == RunPhase.RUNNING and after.reason == FINISHING:
        return []  # it ended before it was seen to train: StageCompleted or Succeeded follows
    if phase == RunPhase.RUNNING:
        return [EventNote("Normal", "Started", f"stage {stage} is training")]
    if phase == RunPhase.SUSPENDED:
        return [EventNote("Normal", "Suspended", _condition_message(after, Condition.SUSPENDED))]
    if phase == RunPhase.SUCCEEDED:
        return [EventNote("Normal", "Succeeded", _condition_message(after, Condition.SUCCEEDED))]
    if phase == RunPhase.FAILED:
        return [EventNote("Warning", "Failed", _condition_message(after, Condition.FAILED))]
    return []


def _condition_message(status: ResourceStatus, kind: Condition) -> str:
    condition = status.condition(kind)
    return condition.message if condition else ""
