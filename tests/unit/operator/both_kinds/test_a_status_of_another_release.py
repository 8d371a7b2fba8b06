"""A status that another release wrote, or a person spoiled, is read for what it still tells: the operator goes on."""

import copy
from typing import Any

import pytest

from lead_operator.decisions.dataset_cache.plan import decide_dataset_cache
from lead_operator.decisions.observed import ObservedBuild, ObservedInstance, ObservedRun
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.names import Condition
from lead_operator.resources.dataset_cache_status import CacheDisplay, DatasetCacheStatus
from lead_operator.resources.status_format import parse_status, status_json
from lead_operator.resources.training_run_status import TrainingRunStatus
from lead_testing.makers import NOW, SETTINGS, a_dataset_cache, a_pod, a_ready_cache, a_training_run
from lead_testing.statuses import find_condition, run_status

STRANGE: list[Any] = [{"later": {"than": ["we", 1]}}, [{"another": "shape"}], "a text", 7, None, True, [], {}]
OLDER_RUN: dict[str, Any] = {  # the backoff of failures once stood in restarts, the books beside the instance
    "observedGeneration": 1,
    "phase": "Running",
    "restarts": {"total": 1, "program": 1, "infrastructure": 0, "atStep": 10, "errorsAtStep": 1, "endsAtStep": 1},
    "stages": [
        {"name": "train", "seed": 0, "phase": "Running", "attempt": 2, "endedAttempt": 1, "created": True,
         "attemptTime": "2026-01-01T11:59:00Z"}
    ],
}  # fmt: skip


def read_run(held: dict[str, Any]) -> dict[str, Any]:
    observed = ObservedRun(
        now=NOW, previous=held, caches=(a_ready_cache(),), service_exists=True,
        pods=(a_pod(0, attempt=2), a_pod(1, attempt=2)), instances=(ObservedInstance("train", 0, highest_attempt=2),),
    )  # fmt: skip
    return decide_training_run(a_training_run(), observed, SETTINGS).status


def test_the_layout_of_an_older_release_keeps_its_attempts_and_its_budgets() -> None:
    status = read_run(OLDER_RUN)
    assert (status["stages"][0]["attempt"], status["restarts"]["program"]) == (2, 1)
    assert status["stages"][0]["restartState"]["created"] is True
    assert "endedAttempt" not in status["stages"][0]


def test_pods_that_an_older_release_named_otherwise_are_the_pods_of_their_ranks() -> None:
    """Names of stages with a dash had no digits of the run's hash once."""
    run = a_training_run(stages=[{"name": "big-train", "epochs": 4}])
    plain = [f"night-drive-big-train-s0-a1-{rank}" for rank in range(2)]
    pods = tuple(a_pod(rank, stage="big-train", name=plain[rank], phase="Pending") for rank in range(2))
    seen: Any = {"now": NOW, "caches": (a_ready_cache(),), "service_exists": True,
                 "instances": (ObservedInstance("big-train", 0),)}  # fmt: skip
    status = decide_training_run(run, ObservedRun(**seen), SETTINGS).status
    for _ in range(2):
        plan = decide_training_run(run, ObservedRun(**seen, pods=pods, previous=status), SETTINGS)
        assert not plan.claim_attempt and not plan.creates and not plan.deletes
        status = plan.status
    assert (status["phase"], "lastFailure" in status) == ("Starting", False)


@pytest.mark.parametrize("value", STRANGE, ids=str)
def test_no_field_of_a_runs_status_can_stop_the_operator(value: Any) -> None:
    sound = read_run(OLDER_RUN)
    for field in [*sound, "lastFailure", "resumedFrom", "seedStatistics", "aFieldOfALaterRelease"]:
        status = read_run({**copy.deepcopy(sound), field: value})
        assert status["stages"][0]["attempt"] == 2, field
        assert find_condition(status, Condition.DATASET_READY), field


def test_what_fits_is_read_as_it_is() -> None:
    sound = read_run(OLDER_RUN)
    assert status_json(run_status(sound)) == sound
    assert status_json(parse_status(TrainingRunStatus, {})) == {}
    assert status_json(parse_status(TrainingRunStatus, None)) == {}


@pytest.mark.parametrize("value", STRANGE, ids=str)
def test_no_field_of_a_caches_status_can_stop_the_operator(value: Any) -> None:
    def observe(held: dict[str, Any]) -> dict[str, Any]:
        observed = ObservedBuild(now=NOW, previous=held)
        return decide_dataset_cache(a_dataset_cache(), observed, SETTINGS).status

    sound = observe({})
    for field in [*sound, "lastFailure", "usedBy", "aFieldOfALaterRelease"]:
        assert observe({**copy.deepcopy(sound), field: value})["phase"] == "Building", field


def test_an_object_of_empty_fields_is_not_written() -> None:
    """Server-side apply of {} over an object that had fields stores null, and the schema then refuses every write."""
    assert status_json(DatasetCacheStatus(phase="Pending", display=CacheDisplay())) == {"phase": "Pending"}
    assert status_json(DatasetCacheStatus(display=CacheDisplay(size="1 kB"))) == {"display": {"size": "1 kB"}}
