"""Conditions with the semantics of metav1, and the events of those that come to ask something of people. Pure.

In a list by type; lastTransitionTime moves only with the status. There is an event where a condition's reason has
changed and no other event reports it. What belongs to the normal course of a run or a build is silent: a run that goes
well writes no more for it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from lead_operator.decisions.failure_policy import CLOCK_SKEW
from lead_operator.decisions.formatting import format_time, on_one_line
from lead_operator.decisions.plan import EventNote
from lead_operator.decisions.remedies import OBJECTS_REFUSED
from lead_operator.names import Condition
from lead_operator.resources.status_format import MAX_CONDITION_MESSAGE, ConditionStatus, ResourceStatus
from lead_protocol.exit_codes import SET_CLOCKS

CHECKPOINT_MISSING = "CheckpointMissing"
FINISHING = "Finishing"
RESIZING, NODES_REFUSED = "Resizing", "NodesRefused"  # spec.nodes was changed: the group ends for it, or it cannot
PODS_LOAD = "Loading"  # all pods run, and rank 0 has not reported a step yet
_ASKS = {  # the status in which a condition asks something of people, whatever its reason
    Condition.ACCEPTED: "False",
    Condition.STORAGE_AVAILABLE: "False",
    Condition.SOURCE_DRIFT: "True",
    Condition.CHECKPOINTS_VALID: "False",
    Condition.SESSION_CACHE_DEGRADED: "True",
    Condition.CLOSED_LOOP: "False",
}
_ORDINARY = {  # reasons of Ready=False that need no action, or that another condition or event reports
    "AllRanksRun", "PodsStarting", "NoAttempt", "Suspended", "Succeeded", "Failed", OBJECTS_REFUSED,
    "Building", "Finishing", "WaitingForOldPods", "SourceChanged", "RemovingData", "InUse", "StorageUnavailable",
    "ClaimTerminating", PODS_LOAD,
}  # fmt: skip
_PREFIXES = {Condition.CLOSED_LOOP: "ClosedLoop"}  # before the reason of an event: Failed alone would be the run
_PATIENT = {"SchedulingGated", "Publishing", RESIZING}  # they end by themselves


@dataclass(frozen=True)
class Finding:
    """The wanted state of one condition; `holds` None means unknown."""

    type: Condition
    holds: bool | None
    reason: str
    message: str


def update_conditions(
    previous: Iterable[ConditionStatus], findings: Iterable[Finding], *, generation: int, now: datetime
) -> tuple[ConditionStatus, ...]:
    """Returns the findings as conditions, in their order; a condition without a finding is dropped."""
    before = {condition.type: condition for condition in previous}
    return tuple(_condition(before.get(f.type.value), f, generation, now) for f in findings)


def _condition(before: ConditionStatus | None, finding: Finding, generation: int, now: datetime) -> ConditionStatus:
    status = {True: "True", False: "False", None: "Unknown"}[finding.holds]
    changed = before is None or before.status != status or not before.last_transition_time
    return ConditionStatus(
        type=finding.type.value,
        status=status,
        observed_generation=generation,
        last_transition_time=format_time(now) if changed or before is None else before.last_transition_time,
        reason=finding.reason,
        message="\n".join(map(on_one_line, finding.message.split("\n")))[:MAX_CONDITION_MESSAGE],  # a line an advisory
    )


def condition_events(before: ResourceStatus, after: ResourceStatus) -> Iterator[EventNote]:
    """Yields events for conditions whose reason has changed."""
    for entry in after.conditions:
        kind, reason = Condition(entry.type), entry.reason
        old = before.condition(kind)
        changed = old is None or (old.status, old.reason) != (entry.status, reason)
        if changed and _asks(kind, entry.status, reason):
            kind_of_note = "Normal" if reason in _PATIENT else "Warning"
            yield EventNote(kind_of_note, f"{_PREFIXES.get(kind, '')}{reason}", entry.message)


def closed_loop_condition_events(before: ResourceStatus, after: ResourceStatus) -> list[EventNote]:
    """Returns the events of the closed loop alone: of a run that has ended nothing else changes."""
    return [note for note in condition_events(before, after) if note.reason.startswith(Condition.CLOSED_LOOP)]


def _asks(kind: Condition, status: str, reason: str) -> bool:
    if kind is Condition.READY:
        return status == "False" and reason not in _ORDINARY
    if kind is Condition.CHECKPOINTED:
        return reason == CHECKPOINT_MISSING
    if kind is Condition.PROGRESSING:  # its other reasons are those of Ready, of the last failure or of the store
        return reason in ("ImplausibleReport", RESIZING)
    if kind is Condition.CONFIG_CHECKED:  # what else it finds wrong ends the run
        return reason == NODES_REFUSED
    return _ASKS.get(kind) == status


def storage_available(store_error: str, profile_error: str) -> Finding:
    """Returns whether the object store answers; the same for both kinds."""
    if profile_error:
        return Finding(Condition.STORAGE_AVAILABLE, False, "UnknownStorageProfile", profile_error)
    if store_error:
        text = f"{store_error}; what runs goes on, nothing new is started until the store answers"
        reason = CLOCK_SKEW if SET_CLOCKS in store_error else "StorageUnavailable"
        return Finding(Condition.STORAGE_AVAILABLE, False, reason, text)
    return Finding(Condition.STORAGE_AVAILABLE, True, "Readable", "the object store answers")
