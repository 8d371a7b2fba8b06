"""What the statuses of both kinds have in common: conditions (metav1) and the newest failure."""

from dataclasses import dataclass

from lead_operator.names import Condition
from lead_operator.resources.status_format import Int, StatusPart


@dataclass(frozen=True, kw_only=True)
class ConditionStatus(StatusPart):
    """One entry of status.conditions."""

    type: str
    status: str  # True | False | Unknown
    observed_generation: Int | None = None
    last_transition_time: str
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class FailureStatus(StatusPart):
    """status.lastFailure: why the newest failed pod ended."""

    time: str | None = None
    pod: str = ""
    node: str = ""
    exit_code: Int | None = None
    class_: str = ""
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class ResourceStatus(StatusPart):
    """What a status of either kind begins with."""

    observed_generation: Int | None = None
    phase: str = ""
    reason: str = ""
    conditions: tuple[ConditionStatus, ...] = ()
    last_failure: FailureStatus | None = None
    start_time: str | None = None
    completion_time: str | None = None

    def condition(self, kind: Condition) -> ConditionStatus | None:
        """Returns the condition of one type, or None."""
        return next((each for each in self.conditions if each.type == kind.value), None)

    def holds(self, kind: Condition) -> bool:
        """Returns whether a condition is True."""
        found = self.condition(kind)
        return found is not None and found.status == "True"
