"""A clock that the store refuses has a reason of its own, which names the node and how far the clock is off."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from lead_operator.decisions.dataset_cache.plan import decide_dataset_cache
from lead_operator.decisions.failure_policy import explain_pod
from lead_operator.decisions.observed import ObservedBuild
from lead_protocol.exit_codes import ExitClass, ExitCode
from lead_protocol.progress_record import BuildRecord
from lead_protocol.store.object_store import StoreSkew, StoreUnavailable
from lead_protocol.store.s3_answers import explain_failure
from lead_testing.makers import NOW, SETTINGS, a_dataset_cache, a_failed_pod
from lead_trainer.errors import exit_code_of

SERVED_AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
BODY = b"<Error><Code>RequestTimeTooSkewed</Code><Message>too large</Message></Error>"


def refused(minutes: float, body: bytes = BODY) -> Exception:
    """Returns the error of a request that was signed so many minutes after the store answered it."""
    headers, signed_at = {"Date": format_datetime(SERVED_AT, usegmt=True)}, SERVED_AT + timedelta(minutes=minutes)
    return explain_failure(403, headers, body, where="GET s3://lead/k at store:9000", signed_at=signed_at)


@pytest.mark.parametrize("minutes, told", [(20, "this one is 20 min ahead"), (-90.4, "this one is 90 min behind")])
def test_the_offset_is_told_where_the_store_tells_its_time(minutes: float, told: str) -> None:
    for body in (BODY, b""):  # a HEAD's answer has none
        error = refused(minutes, body)
        assert isinstance(error, StoreSkew)
        assert str(error).endswith(f"set this machine's clock and the store's right: {told}")


def test_no_offset_is_told_where_the_answers_date_is_right_or_missing() -> None:
    assert str(refused(0.1)).endswith("the store's right")
    assert str(explain_failure(403, {}, BODY, where="GET k", signed_at=SERVED_AT)).endswith("the store's right")


def test_a_pod_that_ended_for_its_clock_says_which_node_and_counts_as_a_disturbance() -> None:
    error = refused(20)
    said = BuildRecord(attempt=1, seq=1, phase="Failed", message=str(error)).model_dump_json()
    failure = explain_pod(a_failed_pod(0, exit_code_of(error), message=said), now=NOW, node_loss_s=60)
    assert failure is not None
    assert (failure.reason, failure.exit_class, failure.node) == ("ClockSkew", ExitClass.INFRASTRUCTURE, "node-0")
    assert failure.message.startswith("the clock of node node-0 or the store's is wrong: GET s3://lead/k at store:9000")
    assert failure.message.endswith("this one is 20 min ahead")


def test_a_store_that_is_away_keeps_its_own_reason() -> None:
    pod = a_failed_pod(0, ExitCode.STORE_UNAVAILABLE, message=str(StoreUnavailable("no answer within 60 s")))
    failure = explain_pod(pod, now=NOW, node_loss_s=60)
    assert failure is not None and (failure.reason, failure.message) == ("StoreUnavailable", "no answer within 60 s")


@pytest.mark.parametrize(
    "error, reason", [(refused(20), "ClockSkew"), (StoreUnavailable("no answer"), "StorageUnavailable")]
)
def test_the_operators_own_clock_is_told_by_the_condition_of_the_store(error: Exception, reason: str) -> None:
    observed = ObservedBuild(now=NOW, store_error=f"{type(error).__name__}: {error}")
    conditions: list[dict[str, Any]] = decide_dataset_cache(a_dataset_cache(), observed, SETTINGS).status["conditions"]
    (found,) = [c for c in conditions if c["type"] == "StorageAvailable"]
    assert (found["status"], found["reason"]) == ("False", reason)
