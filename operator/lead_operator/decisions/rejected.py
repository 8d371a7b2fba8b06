"""The status of a resource that is not served because its object is too large or too deep. Pure.

Nothing else is touched: pods that it has go on, and the next spec that can be read is answered as any other.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from lead_operator.decisions.conditions import Finding, update_conditions
from lead_operator.decisions.plan import Plan
from lead_operator.names import Condition
from lead_operator.resources.recipe_config import Rejection
from lead_operator.resources.status_format import ResourceStatus, status_json


def decide_rejected(
    rejection: Rejection, previous: ResourceStatus, not_ended: Iterable[Finding], *, generation: int, now: datetime
) -> Plan:
    """Returns the status with Accepted=False and all else as it was; one that has no end conditions gets them."""
    findings = [Finding(Condition.ACCEPTED, False, rejection.reason, rejection.message)]
    findings += [each for each in not_ended if previous.condition(each.type) is None]
    accepted, *ends = update_conditions(previous.conditions, findings, generation=generation, now=now)
    others = (each for each in previous.conditions if each.type != Condition.ACCEPTED.value)
    status = replace(
        previous,
        observed_generation=generation,
        phase=previous.phase or "Pending",
        reason=rejection.reason,
        conditions=(accepted, *others, *ends),
    )
    return Plan(status=status_json(status), urgent=status.reason != previous.reason)
