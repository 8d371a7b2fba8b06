"""Conditions with the semantics of metav1: in a list by type, and lastTransitionTime moves only with the status."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lead_operator.decisions.figures import format_time, on_one_line
from lead_operator.names import Condition

MAX_MESSAGE = 2048


@dataclass(frozen=True)
class Finding:
    """What one condition should say now; `holds` None means unknown."""

    type: Condition
    holds: bool | None
    reason: str
    message: str


def update_conditions(
    previous: Any, findings: Iterable[Finding], *, generation: int, now: datetime
) -> list[dict[str, Any]]:
    """Returns the findings as conditions, in their order; a condition without a finding is dropped."""
    before = {c.get("type"): c for c in previous or [] if isinstance(c, dict)}
    return [_condition(before.get(f.type.value), f, generation, now) for f in findings]


def find_condition(status: dict[str, Any], kind: Condition) -> dict[str, Any] | None:
    """Returns the condition of one type, or None."""
    for condition in status.get("conditions") or []:
        if isinstance(condition, dict) and condition.get("type") == kind.value:
            return condition
    return None


def condition_holds(status: dict[str, Any], kind: Condition) -> bool:
    """Returns whether a condition is True."""
    condition = find_condition(status, kind)
    return condition is not None and condition.get("status") == "True"


def _condition(before: dict[str, Any] | None, finding: Finding, generation: int, now: datetime) -> dict[str, Any]:
    status = {True: "True", False: "False", None: "Unknown"}[finding.holds]
    changed = before is None or before.get("status") != status or not before.get("lastTransitionTime")
    return {
        "type": finding.type.value,
        "status": status,
        "observedGeneration": generation,
        "lastTransitionTime": format_time(now) if changed or before is None else before["lastTransitionTime"],
        "reason": finding.reason,
        "message": "\n".join(map(on_one_line, finding.message.split("\n")))[:MAX_MESSAGE],  # a line an advisory
    }
