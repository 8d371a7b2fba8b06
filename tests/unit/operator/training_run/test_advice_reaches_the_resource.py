"""What the trainer's watch rules say becomes a condition, and an event when it is new."""

from dataclasses import replace
from typing import Any

from lead_operator.decisions.observed import ObservedInstance, ObservedRun
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.names import Condition
from lead_protocol.progress_record import Advisory, ProgressRecord
from lead_testing.makers import NOW, SETTINGS, a_pod, a_ready_cache, a_training_run
from lead_testing.statuses import find_condition

BUCKET = ObservedInstance("train", 0, checkpoint=None, highest_attempt=1)
SLOW = Advisory(rule="slow-loading", epoch=2, message="40% of the last epoch was spent waiting; raise the threads")
FLAT = Advisory(rule="plateau", epoch=3, message="the loss has not fallen; try a higher lr")


def decide(previous: dict[str, Any], *advisories: Advisory, seq: int = 1) -> Plan:
    record = ProgressRecord(
        attempt=1, seq=seq, phase="Training", epoch=3, epochs=4, step=36, steps=48, advisories=list(advisories)
    )
    observed = ObservedRun(
        now=NOW, previous=previous, caches=(a_ready_cache(),), service_exists=True, pods=(a_pod(0), a_pod(1)),
        instances=(replace(BUCKET, progress=record),),
    )  # fmt: skip
    return decide_training_run(a_training_run(), observed, SETTINGS)


def advice(plan: Plan) -> list[str]:
    return [note.message for note in plan.events if note.reason == "Advisory"]


def a_started_run() -> dict[str, Any]:
    observed = ObservedRun(
        now=NOW, previous={}, caches=(a_ready_cache(),), service_exists=True,
        instances=(ObservedInstance("train", 0, checkpoint=None, highest_attempt=0),),
    )  # fmt: skip
    return decide_training_run(a_training_run(), observed, SETTINGS).status


def test_an_advisory_is_a_condition_and_one_event_and_the_run_goes_on() -> None:
    before = a_started_run()
    quiet = decide(before)
    assert find_condition(quiet.status, Condition.ADVISORY) is None
    first = decide(quiet.status, SLOW, seq=2)
    told = find_condition(first.status, Condition.ADVISORY)
    assert told is not None and (told["status"], told["reason"]) == ("True", "SlowLoading")
    assert told["message"] == f"slow-loading, epoch 2: {SLOW.message}"
    assert advice(first) == [f"slow-loading, epoch 2: {SLOW.message}"]
    assert first.status["phase"] == "Running" and not first.deletes
    again = decide(first.status, SLOW, seq=3)
    assert advice(again) == []
    second = decide(again.status, SLOW, FLAT, seq=4)
    told = find_condition(second.status, Condition.ADVISORY)
    assert told is not None and told["reason"] == "Plateau" and told["message"].count("\n") == 1
    assert advice(second) == [f"plateau, epoch 3: {FLAT.message}"]
