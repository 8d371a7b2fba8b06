"""Conditions with the semantics of metav1: in a list by type, and lastTransitionTime moves only with the status."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from lead_operator.decisions.formatting import format_time, on_one_line
from lead_operator.names import Condition
from lead_operator.resources.condition_status import ConditionStatus

MAX_MESSAGE = 2048


@dataclass(frozen=True)
class Finding:
    """What one condition should say now; `holds` None means unknown."""

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
        message="\n".join(map(on_one_line, finding.message.split("\n")))[:MAX_MESSAGE],  # a line an advisory
    )
