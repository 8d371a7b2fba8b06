"""Somebody writes other restarts and ends into the status of a run: records below control/ and the pods decide."""

import copy
from datetime import timedelta
from typing import Any

import pytest

from lead_operator.bucket.bucket_view import BucketView
from lead_operator.controllers.reported_runs import ReportedRuns
from lead_operator.decisions.formatting import format_time
from lead_operator.decisions.observed import ObservedInstance, ObservedPod, ObservedRun
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.decisions.training_run.reported_counters import find_contradiction
from lead_operator.names import Condition
from lead_protocol.run_records import RestartRecord, parse_restart_record
from lead_testing.makers import NOW, SETTINGS, a_failed_pod, a_pod, a_ready_cache, a_training_run
from lead_testing.parsed_statuses import run_status
from lead_testing.statuses import find_condition

RUN = a_training_run(nodes=1, failurePolicy={"maxRestarts": 2})
AWAY = "StoreUnavailable: no answer"
Status = dict[str, Any]


def bucket(attempt: int) -> ObservedInstance:
    return ObservedInstance("train", 0, highest_attempt=attempt, recorded_attempt=attempt, fence=attempt)


def a_new_process() -> ReportedRuns:
    return ReportedRuns(BucketView(SETTINGS))


def observe(status: Status, *pods: ObservedPod, after_s: float = 0, attempt: int = 1, **seen: Any) -> ObservedRun:
    seen = {"instances": (bucket(attempt),)} | seen
    return ObservedRun(
        now=NOW + timedelta(seconds=after_s), pods=pods, service_exists=True, caches=(a_ready_cache(),),
        previous=copy.deepcopy(status), **seen,
    )  # fmt: skip


def decide(observed: ObservedRun) -> Plan:
    return decide_training_run(RUN, observed, SETTINGS)


def restarted() -> tuple[Status, RestartRecord]:
    """Returns the status of a run whose second attempt runs, and what is recorded of its first."""
    first = decide(observe({}, instances=(ObservedInstance("train", 0),))).status
    up = decide(observe(first, a_pod(0))).status
    failed = decide(observe(up, a_failed_pod(0)))
    (record,) = (record for record in failed.records if record.counts)
    recorded = parse_restart_record(record.data)
    assert recorded is not None and failed.claim_attempt and recorded.program == 1
    return decide(observe(failed.status, a_pod(0, attempt=2), attempt=2, restart_record=recorded)).status, recorded


def forged(status: Status, field: str, value: Any) -> Status:
    made = copy.deepcopy(status)
    entry = made["stages"][0]
    holder = {"restarts": made["restarts"], "stage": entry, "restartState": entry["restartState"]}
    where, _, name = field.partition(".")
    holder[where][name] = value
    return made


FORGED = [
    ("restarts.program", 100), ("restarts.program", 0), ("restarts.infrastructure", 100), ("restarts.voluntary", 7),
    ("restartState.endedAttempt", 2), ("restartState.endedAttempt", 0), ("restartState.endedAttempt", 50),
    ("stage.attempt", 50),
    ("restartState.errorsAtStep", 9), ("restartState.errorsAtStep", 0), ("restartState.failedAttempt", 2),
    ("restartState.failedAt", "2099-01-01T00:00:00Z"),
    ("restartState.endsAtStep", 9), ("restartState.atStep", 10**6),
]  # fmt: skip


def test_what_the_operator_writes_contradicts_nothing() -> None:
    status, recorded = restarted()
    assert find_contradiction(RUN, observe(status, a_pod(0, attempt=2), attempt=2, restart_record=recorded)) == ""


def test_a_status_erased_between_two_suspensions_counts_one_of_them_and_is_believed() -> None:
    status = decide(observe({}, a_pod(0, attempt=2), attempt=2)).status
    assert status["restarts"]["voluntary"] == 1
    third = forged(forged(status, "stage.attempt", 3), "restartState.endedAttempt", 2)
    seen = observe(third, a_pod(0, attempt=3), attempt=3)
    assert find_contradiction(RUN, seen) == ""
    assert find_contradiction(RUN, observe(forged(third, "restarts.voluntary", 3), a_pod(0, attempt=3), attempt=3))


@pytest.mark.parametrize(("field", "value"), FORGED)
def test_forged_counters_are_replaced_and_move_nothing(field: str, value: Any) -> None:
    status, recorded = restarted()
    pods = (a_pod(0, attempt=2),)
    seen = observe(forged(status, field, value), *pods, attempt=2, restart_record=recorded)
    observed = a_new_process().check_counters(RUN, seen)
    assert observed.counters_disproved
    plan = decide(observed)
    assert not plan.deletes and not plan.creates and not plan.records
    assert plan.status["restarts"] == status["restarts"]
    entry, before = plan.status["stages"][0], status["stages"][0]
    assert {**entry, "restartState": entry["restartState"] | {"attemptTime": ""}} == {
        **before,
        "restartState": before["restartState"] | {"attemptTime": ""},
    }
    assert [note.reason for note in plan.events if note.type == "Warning"] == ["StatusRestored"]
    again = observe(plan.status, *pods, attempt=2, restart_record=recorded)
    assert find_contradiction(RUN, again) == "" and decide(again).status == plan.status


def test_a_lowered_counter_gives_no_restart_back() -> None:
    status, recorded = restarted()
    lowered = forged(forged(status, "restarts.program", 0), "restarts.total", 0)
    pods = (a_failed_pod(0, attempt=2),)
    plan = decide(a_new_process().check_counters(RUN, observe(lowered, *pods, attempt=2, restart_record=recorded)))
    assert plan.status["restarts"]["program"] == 2


def test_an_operator_that_died_between_record_and_status_books_the_same_again() -> None:
    status, recorded = restarted()
    pods = (a_failed_pod(0, attempt=2),)
    told = decide(observe(status, *pods, attempt=2, restart_record=recorded))
    (record,) = (record for record in told.records if record.counts)
    ahead = observe(status, *pods, attempt=2, restart_record=parse_restart_record(record.data))
    assert find_contradiction(RUN, ahead) == ""
    again = decide(ahead)
    assert again.status["restarts"] == told.status["restarts"] and again.status["lastFailure"]["attempt"] == 2
    assert {record.key for record in again.records} == {record.key for record in told.records}


def test_one_failure_that_two_operators_booked_contradicts_nothing() -> None:
    """One of them stood still between the record and its status: it sees the failure later, and as another one."""
    status, recorded = restarted()
    dated = forged(status, "restartState.failedAt", format_time(NOW + timedelta(seconds=50)))
    later = forged(dated, "restartState.failedReason", "PodGone")
    assert status["stages"][0]["restartState"]["failedReason"] != "PodGone"
    assert find_contradiction(RUN, observe(later, a_pod(0, attempt=2), attempt=2, restart_record=recorded)) == ""


def test_what_the_store_did_not_take_is_believed_and_recorded_when_it_is_back() -> None:
    status, recorded = restarted()
    away = decide(observe(status, a_failed_pod(0, attempt=2), instances=(), store_error=AWAY))
    assert away.status["restarts"]["program"] == 2 and not away.records
    assert (find_condition(away.status, Condition.STORAGE_AVAILABLE) or {})["status"] == "False"
    back = observe(away.status, a_failed_pod(0, attempt=2), attempt=2, restart_record=recorded)
    assert find_contradiction(RUN, back) == ""
    (record,) = (record for record in decide(back).records if record.counts)
    owed = parse_restart_record(record.data)
    assert owed is not None and owed.program == 2


@pytest.mark.parametrize(("field", "value"), [("restartState.endedAttempt", 50), ("stage.attempt", 50)])
def test_no_outage_explains_an_attempt_that_nobody_started(field: str, value: int) -> None:
    status, recorded = restarted()
    pods = (a_pod(0, attempt=2),)
    away = decide(observe(forged(status, field, value), *pods, instances=(), store_error=AWAY)).status
    back = a_new_process().check_counters(RUN, observe(away, *pods, attempt=2, restart_record=recorded))
    assert back.counters_disproved
    plan = decide(back)
    assert not plan.deletes and not plan.creates and plan.status["stages"][0]["attempt"] == 2


def test_nothing_is_said_while_nobody_can_know() -> None:
    status, _ = restarted()
    raised = forged(status, "restarts.program", 100)
    assert find_contradiction(RUN, observe(raised, a_pod(0, attempt=2), instances=(), store_error=AWAY)) == ""


def test_a_process_believes_what_it_has_decided_itself_whatever_its_last_look_held() -> None:
    status, _ = restarted()
    known = a_new_process()
    stale = observe(status, a_pod(0, attempt=2), attempt=2, restart_record=None)
    assert known.check_counters(RUN, stale).counters_disproved
    known.note(RUN, run_status(status), run_status(status))
    assert not known.check_counters(RUN, stale).counters_disproved
    known.memories.forget(RUN.identity.uid)
    assert known.check_counters(RUN, stale).counters_disproved


def test_a_suspended_run_that_goes_on_has_no_restart_in_its_records() -> None:
    held = a_training_run(nodes=1, suspend=True)
    first = decide(observe({}, instances=(ObservedInstance("train", 0),))).status
    up = decide(observe(first, a_pod(0))).status
    stopping = decide_training_run(held, observe(up, a_pod(0)), SETTINGS).status
    assert find_contradiction(held, observe(stopping, a_pod(0))) == ""
    assert find_contradiction(RUN, observe(stopping, a_pod(0))) == "", "resumed before its pods were gone"
    stopped = decide_training_run(held, observe(stopping), SETTINGS).status
    begun = decide(observe(stopped)).status
    assert begun["stages"][0]["attempt"] == 2 and begun["restarts"]["total"] == 0
    assert find_contradiction(RUN, observe(begun, a_pod(0, attempt=2), attempt=2)) == ""
    erased = decide(observe({}, a_pod(0, attempt=2), attempt=2)).status
    assert find_contradiction(RUN, observe(erased, a_pod(0, attempt=2), attempt=2)) == ""
