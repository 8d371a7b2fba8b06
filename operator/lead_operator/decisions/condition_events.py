"""Events for conditions that come to ask something of people: where their reason has changed, and no other event tells.

Called by `decisions.events`. Pure. What belongs to the normal course of a run or a build is silent: a run that goes
well writes no more for it.
"""

from collections.abc import Iterator

from lead_operator.decisions.plan import EventNote
from lead_operator.decisions.refusals import OBJECTS_REFUSED
from lead_operator.decisions.training_run.step import CHECKPOINT_MISSING, PODS_LOAD
from lead_operator.names import Condition
from lead_operator.resources.condition_status import ResourceStatus

_ASKS = {  # the status in which a condition asks something of people, whatever its reason
    Condition.ACCEPTED: "False",
    Condition.STORAGE_AVAILABLE: "False",
    Condition.SOURCE_DRIFT: "True",
    Condition.CHECKPOINTS_SOUND: "False",
    Condition.SESSION_CACHE_DEGRADED: "True",
}
_ORDINARY = {  # reasons of a Ready that is False and asks nothing, or of which another condition or event tells
    "AllRanksRun", "PodsStarting", "NoAttempt", "Suspended", "Succeeded", "Failed", OBJECTS_REFUSED,
    "Building", "Finishing", "WaitingForOldPods", "SourceChanged", "RemovingData", "InUse", "StorageUnavailable",
    "ClaimTerminating", PODS_LOAD,
}  # fmt: skip
_PATIENT = {"SchedulingGated", "Publishing"}  # they end by themselves


def condition_events(before: ResourceStatus, after: ResourceStatus) -> Iterator[EventNote]:
    """Yields what a person should hear of conditions whose reason has changed."""
    for entry in after.conditions:
        kind, reason = Condition(entry.type), entry.reason
        old = before.condition(kind)
        changed = old is None or (old.status, old.reason) != (entry.status, reason)
        if changed and _asks(kind, entry.status, reason):
            yield EventNote("Normal" if reason in _PATIENT else "Warning", reason, entry.message)


def _asks(kind: Condition, status: str, reason: str) -> bool:
    if kind is Condition.READY:
        return status == "False" and reason not in _ORDINARY
    if kind is Condition.CHECKPOINTED:
        return reason == CHECKPOINT_MISSING
    if kind is Condition.PROGRESSING:  # its other reasons are those of Ready, of the last failure or of the store
        return reason == "ImplausibleReport"
    return _ASKS.get(kind) == status
