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
from lead_testing.parsed_statuses import run_status
from lead_testing.statuses import find_condition

STRANGE: list[Any] = [{"later": {"than": ["we", 1]}}, [{"another": "shape"}], "a text", 7, None, True, [], {}]
A_RUN: dict[str, Any] = {
    "observedGeneration": 1,
    "phase": "Running",
    "restarts": {"total": 1, "program": 1},
    "stages": [
        {"name": "train", "seed": 0, "phase": "Running", "attempt": 2,
         "restartState": {"endedAttempt": 1, "created": True, "attemptTime": "2026-01-01T11:59:00Z"}}
    ],
}  # fmt: skip


def read_run(held: dict[str, Any]) -> dict[str, Any]:
    observed = ObservedRun(
        now=NOW, previous=held, caches=(a_ready_cache(),), service_exists=True,
        pods=(a_pod(0, attempt=2), a_pod(1, attempt=2)), instances=(ObservedInstance("train", 0, highest_attempt=2),),
    )  # fmt: skip
    return decide_training_run(a_training_run(), observed, SETTINGS).status


@pytest.mark.parametrize("value", STRANGE, ids=str)
def test_no_field_of_a_runs_status_can_stop_the_operator(value: Any) -> None:
    whole = read_run(A_RUN)
    for field in [*whole, "lastFailure", "resumedFrom", "seedStatistics", "aFieldOfALaterRelease"]:
        status = read_run({**copy.deepcopy(whole), field: value})
        assert status["stages"][0]["attempt"] == 2, field
        assert find_condition(status, Condition.DATASET_READY), field


def test_what_fits_is_read_as_it_is() -> None:
    whole = read_run(A_RUN)
    assert status_json(run_status(whole)) == whole
    assert status_json(parse_status(TrainingRunStatus, {})) == {}
    assert status_json(parse_status(TrainingRunStatus, None)) == {}


@pytest.mark.parametrize("value", STRANGE, ids=str)
def test_no_field_of_a_caches_status_can_stop_the_operator(value: Any) -> None:
    def observe(held: dict[str, Any]) -> dict[str, Any]:
        observed = ObservedBuild(now=NOW, previous=held)
        return decide_dataset_cache(a_dataset_cache(), observed, SETTINGS).status

    whole = observe({})
    for field in [*whole, "lastFailure", "usedBy", "aFieldOfALaterRelease"]:
        assert observe({**copy.deepcopy(whole), field: value})["phase"] == "Building", field


def test_an_object_of_empty_fields_is_not_written() -> None:
    """Server-side apply of {} over an object that had fields stores null, and the schema then refuses every write."""
    assert status_json(DatasetCacheStatus(phase="Pending", display=CacheDisplay())) == {"phase": "Pending"}
    assert status_json(DatasetCacheStatus(display=CacheDisplay(size="1 kB"))) == {"display": {"size": "1 kB"}}
