"""Somebody writes into the restart state of a status: the operator goes on, and the API takes its next status."""

from datetime import timedelta
from typing import Any

import pytest

from lead_operator.decisions.observed import ObservedInstance, ObservedRun
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_testing.makers import NOW, SETTINGS, a_failed_pod, a_pod, a_ready_cache, a_training_run

RUN = a_training_run()
GROUP, ENDED = (a_pod(0), a_pod(1)), (a_failed_pod(0, 137), a_failed_pod(1, 137))
FORGED = {"endedAttempt": 0, "atStep": 3, "errorsAtStep": 9, "endsAtStep": 9, "failedAttempt": 1}


def decide(status: dict[str, Any], pods: tuple[Any, ...], at_s: float) -> Plan:
    observed = ObservedRun(
        now=NOW + timedelta(seconds=at_s), pods=pods, service_exists=True,
        instances=(ObservedInstance("train", 0),), previous=status, caches=(a_ready_cache(),),
    )  # fmt: skip
    return decide_training_run(RUN, observed, SETTINGS)


def running() -> dict[str, Any]:
    return decide(decide({}, (), 0).status, GROUP, 5).status


def with_restart_state(status: dict[str, Any], **held: Any) -> dict[str, Any]:
    (stage,) = status["stages"]
    return {**status, "stages": [{**stage, "restartState": {**stage["restartState"], **held}}]}


def nulls(value: Any, where: str = "status") -> list[str]:
    if isinstance(value, dict):
        return [found for key, each in value.items() for found in nulls(each, f"{where}.{key}")]
    if isinstance(value, list):
        return [found for number, each in enumerate(value) for found in nulls(each, f"{where}[{number}]")]
    return [where] if value is None else []


@pytest.mark.parametrize("left_out", ["failedAt", "failedReason", "atStep", "endsAtStep", "failedAttempt"])
def test_a_field_that_is_not_there_is_not_written_as_null(left_out: str) -> None:
    held = {"failedAt": "2026-01-01T00:00:00Z", "failedReason": "Forged", **FORGED}
    forged = with_restart_state(running(), **{key: value for key, value in held.items() if key != left_out})
    assert nulls(decide(forged, GROUP, 10).status) == []


def recovering() -> dict[str, Any]:
    """A run whose tenth failure at one place is followed by the longest pause."""
    return decide(with_restart_state(running(), atStep=-1, endsAtStep=9, failedAttempt=1), ENDED, 10).status


def attempt_at(status: dict[str, Any], at_s: float) -> int:
    (stage,) = decide(status, ENDED, at_s).status["stages"]
    return int(stage["attempt"])


def test_a_pause_is_waited_for() -> None:
    assert [attempt_at(recovering(), at_s) for at_s in (20, 80)] == [1, 2]


def test_a_failure_of_the_future_holds_no_attempt_back() -> None:
    assert attempt_at(with_restart_state(recovering(), failedAt="2999-01-01T00:00:00Z"), 80) == 2
