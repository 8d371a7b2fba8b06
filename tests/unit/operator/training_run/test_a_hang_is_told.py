"""When an attempt counts as hung, and what a person reads of it: how far it was, who reported last, where logs are."""

from datetime import timedelta
from typing import Any

import pytest

from lead_operator.decisions.observed import ObservedInstance, ObservedRun
from lead_operator.decisions.training_run.health import LOADING_S
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.resources.training_run import TrainingRun
from lead_protocol.progress_record import ProgressRecord
from lead_testing.makers import NOW, SETTINGS, a_pod, a_ready_cache, a_training_run

RUN = a_training_run(failurePolicy={"hangTimeoutSeconds": 100})
GROUP = (a_pod(0), a_pod(1))
REPORT = ProgressRecord(attempt=1, seq=1, phase="Training", epoch=1, epochs=4, step=12, steps=48)


def a_report(**fields: Any) -> ProgressRecord:
    return REPORT.model_copy(update=fields)


def hung(*reports: ProgressRecord | None, after_last_s: float = 100, run: TrainingRun = RUN) -> dict[str, Any]:
    """Plays a run whose rank 0 reports each of `reports`, 40 s apart, then nothing more; returns its last failure."""
    status: dict[str, Any] = {}
    looks = [(0.0, None, ()), *((40.0 * at, report, GROUP) for at, report in enumerate(reports))]
    last = looks[-1]
    for after_s, report, pods in [*looks, (last[0] + after_last_s, last[1], GROUP)]:
        observed = ObservedRun(
            now=NOW + timedelta(seconds=after_s), pods=pods, service_exists=True, caches=(a_ready_cache(),),
            instances=(ObservedInstance("train", 0, progress=report),), previous=status,
        )  # fmt: skip
        status = decide_training_run(run, observed, SETTINGS).status
    return dict(status.get("lastFailure", {}))


def test_a_hang_names_who_was_last_heard_and_how_far_the_training_was() -> None:
    failure = hung(REPORT, a_report(step=13, seq=2))
    assert (failure["reason"], failure["pod"], failure["node"]) == ("Hung", GROUP[0].name, "node-0")
    assert failure["message"].startswith(
        f"no new step for 100 s; rank 0 (pod {GROUP[0].name} on node node-0) last reported at 2026-01-01T12:00:40Z: "
        "Training, epoch 1 of 4, step 13 of 48; "
    )


def test_what_rank_0_waited_for_is_part_of_it() -> None:
    said = hung(a_report(message="validation: batch 3 of 9", phase="Checkpointing"))["message"]
    assert "Checkpointing, epoch 1 of 4, step 12 of 48, validation: batch 3 of 9; " in said


@pytest.mark.parametrize(("silent_s", "next_reading_s", "again_s"), [(30, 120.0, 70), (30, 40.0, 40), (30, None, 10)])
def test_a_hang_is_looked_for_in_time_however_seldom_the_bucket_is_read(
    silent_s: float, next_reading_s: float | None, again_s: float
) -> None:
    status: dict[str, Any] = {}
    for after_s, pods in ((0, ()), (0, GROUP), (silent_s, GROUP)):
        observed = ObservedRun(
            now=NOW + timedelta(seconds=after_s), pods=pods, service_exists=True, caches=(a_ready_cache(),),
            instances=(ObservedInstance("train", 0, progress=REPORT),), previous=status, next_reading_s=next_reading_s,
        )  # fmt: skip
        plan = decide_training_run(RUN, observed, SETTINGS)
        status = plan.status
    assert plan.requeue_after_s == again_s


def test_a_hang_before_the_first_report_says_that_nothing_was_reported() -> None:
    said = hung(None, after_last_s=LOADING_S)["message"]
    assert said.startswith(
        f"no first step for 1800 s; rank 0 (pod {GROUP[0].name} on node node-0) has not reported yet; if loading is "
    )


LOADS = a_report(phase="Loading", epoch=0, step=0, steps=0)
BEGINS = {  # what an attempt reports before its first step
    "nothing": None,
    "that it loads": LOADS,
    "where it resumes": a_report(phase="Loading", resumed_from_step=12),
    "that it trains now": a_report(resumed_from_step=12),
    "that it trains from the beginning": a_report(epoch=0, step=0),
}


@pytest.mark.parametrize("report", BEGINS.values(), ids=BEGINS)
def test_an_attempt_that_loads_or_compiles_has_more_time_than_a_step(report: ProgressRecord | None) -> None:
    assert hung(report, after_last_s=LOADING_S - 1) == {}
    assert hung(report, after_last_s=LOADING_S)["message"].startswith("no first step for 1800 s; ")


def test_a_longer_limit_for_steps_holds_for_loading_too() -> None:
    slow = a_training_run(failurePolicy={"hangTimeoutSeconds": 7200})
    assert hung(LOADS, after_last_s=7199, run=slow) == {}
    assert hung(LOADS, after_last_s=7200, run=slow)["message"].startswith("no first step for 7200 s; ")


def test_a_hang_sends_nobody_to_logs_that_are_gone() -> None:
    failure = hung(REPORT)
    assert "where your cluster collects logs" in failure["message"]
    assert "the pods' own logs are deleted with the pods" in failure["message"]
    assert len(failure["message"]) < 512
