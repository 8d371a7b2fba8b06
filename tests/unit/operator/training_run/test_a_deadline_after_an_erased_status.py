"""An erased status ends no run early: the time from before a suspension does not count, whatever pods are left."""

from datetime import timedelta
from typing import Any

import pytest

from lead_operator.decisions.observed import ObservedPod, ObservedRun
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_testing.makers import NOW, SETTINGS, a_failed_pod, a_pod, a_ready_cache, a_training_run

RUN = a_training_run(activeDeadlineSeconds=1000)
RESUMED_AT = NOW + timedelta(days=3)


def erased(after_s: float, *pods: ObservedPod) -> dict[str, Any]:
    """Returns the status that is made of pods alone, so many seconds after the run was resumed."""
    observed = ObservedRun(
        now=RESUMED_AT + timedelta(seconds=after_s), pods=pods, service_exists=True, caches=(a_ready_cache(),)
    )
    return decide_training_run(RUN, observed, SETTINGS).status


def attempt(number: int, created_after_s: float = 0) -> tuple[ObservedPod, ...]:
    began = RESUMED_AT + timedelta(seconds=created_after_s)
    return tuple(a_pod(rank, attempt=number, created_at=began, started_at=began) for rank in (0, 1))


BEFORE = tuple(a_failed_pod(rank, attempt=1) for rank in (0, 1))  # they are kept for their logs


STAYS = (a_pod(0, deleting=True, grace_ends_at=NOW),)  # its kubelet does not let it go: nothing waits for it


@pytest.mark.parametrize("kept", [(), BEFORE, STAYS])
def test_a_pod_kept_from_before_a_suspension_spends_no_time_of_the_run(kept: tuple[ObservedPod, ...]) -> None:
    status = erased(999, *kept, *attempt(2))
    assert (status["phase"], status["startTime"]) == ("Starting", "2026-01-04T12:00:00Z")
    status = erased(1000, *kept, *attempt(2))
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")


def test_where_nothing_runs_the_newest_pod_that_ended_counts() -> None:
    ended = tuple(a_failed_pod(rank, attempt=2, created_at=RESUMED_AT) for rank in (0, 1))
    assert erased(999, *BEFORE, *ended)["startTime"] == "2026-01-04T12:00:00Z"
