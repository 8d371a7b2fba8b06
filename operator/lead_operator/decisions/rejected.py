"""What is done for a resource that is not served because its object is too large or too deep: it is told why. Pure.

Nothing else is touched: pods that it has go on, and the next spec that can be read is answered as any other.
"""

from datetime import datetime
from typing import Any

from lead_operator.decisions.conditions import Finding, update_conditions
from lead_operator.decisions.plan import Plan
from lead_operator.names import Condition
from lead_operator.resources.recipe_config import Rejection


def decide_rejected(rejection: Rejection, previous: dict[str, Any], *, generation: int, now: datetime) -> Plan:
    """Returns the status with Accepted=False and all else as it was."""
    finding = Finding(Condition.ACCEPTED, False, rejection.reason, rejection.message)
    accepted = update_conditions(previous.get("conditions"), [finding], generation=generation, now=now)
    others = [c for c in previous.get("conditions") or [] if c.get("type") != Condition.ACCEPTED.value]
    status = {
        **previous,
        "observedGeneration": generation,
        "phase": previous.get("phase") or "Pending",
        "reason": rejection.reason,
        "conditions": [*accepted, *others],
    }
    return Plan(status=status, urgent=status.get("reason") != previous.get("reason"))
