"""What a person should know of a condition is also an event: once, when its reason changes; a good life has none."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lead_operator.decisions.conditions import Finding, update_conditions
from lead_operator.decisions.dataset_cache.plan import decide_cache_removal, decide_dataset_cache
from lead_operator.decisions.events import cache_events, run_events
from lead_operator.decisions.observed import ObservedBuild, ObservedInstance, ObservedPod, ObservedRun
from lead_operator.decisions.plan import EventNote, Plan
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.names import Condition
from lead_operator.resources.dataset_cache_status import DatasetCacheStatus
from lead_protocol.progress_record import ProgressRecord
from lead_testing.makers import NOW, SETTINGS, a_dataset_cache, a_pod, a_ready_cache, a_training_run
from lead_testing.parsed_statuses import run_status

DEGRADED = {"cache_degraded": True}
RECORD = ProgressRecord(attempt=1, seq=1, phase="Training", epoch=1, epochs=4, step=12, steps=48)
BUCKET = ObservedInstance("train", 0, highest_attempt=1, progress=RECORD)


def decide(previous: dict[str, Any], after_s: float = 0, **seen: Any) -> Plan:
    fields: dict[str, Any] = {"caches": (a_ready_cache(),), "service_exists": True, "instances": (BUCKET,)} | seen
    observed = ObservedRun(now=NOW + timedelta(seconds=after_s), previous=previous, **fields)
    return decide_training_run(a_training_run(), observed, SETTINGS)


def started() -> dict[str, Any]:
    """Returns the status after attempt 1 was claimed."""
    return decide({}, instances=(ObservedInstance("train", 0),)).status


def waiting(reason: str, message: str = "so it is said") -> tuple[ObservedPod, ...]:
    pod = a_pod(1, phase="Pending", ready=False, waiting_reason=reason, waiting_message=message)
    return a_pod(0), pod


def told(plan: Plan) -> list[tuple[str, str]]:
    return [(note.type, note.reason) for note in plan.events]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("Warning", "Unschedulable"),
        ("Warning", "ImagePullBackOff"),
        ("Warning", "CreateContainerConfigError"),
        ("Warning", "FailedMount"),
        ("Normal", "SchedulingGated"),
    ],
)
def test_why_pods_wait_is_told_once_in_the_words_of_the_condition(kind: str, reason: str) -> None:
    first = decide(started(), pods=waiting(reason))
    assert told(first) == [(kind, reason)]
    assert "so it is said" in first.events[0].message
    again = decide(first.status, 60, pods=waiting(reason, "it is said in other reports"))
    assert told(again) == []
    assert told(decide(again.status, 90, pods=waiting("ErrImagePull"))) == [("Warning", "ErrImagePull")]


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        ("StorageUnavailable", {"store_error": "StoreUnavailable: no answer", "instances": ()}),
        ("UnknownStorageProfile", {"profile_error": "storage profile 'x' is not defined", "instances": ()}),
        ("Quarantined", {"instances": (replace(BUCKET, quarantined=("key",)),)}),
        (
            "DiskUnusable",
            {"instances": (replace(BUCKET, progress=RECORD.model_copy(update=DEGRADED)),)},
        ),
        ("ImplausibleReport", {"instances": (replace(BUCKET, progress=RECORD.model_copy(update={"epoch": 9})),)}),
    ],
)
def test_what_is_wrong_beside_the_pods_is_told_once(kind: str, seen: dict[str, Any]) -> None:
    pods = (a_pod(0), a_pod(1))
    runs = decide(started(), pods=pods).status
    first = decide(runs, 10, pods=pods, **seen)
    assert told(first) == [("Warning", kind)]
    assert told(decide(first.status, 20, pods=pods, **seen)) == []
    mended = decide(first.status, 30, pods=pods)
    assert told(mended) == []
    assert told(decide(mended.status, 40, pods=pods, **seen)) == [("Warning", kind)]


def test_a_good_life_has_no_event_for_its_conditions() -> None:
    claimed = decide({}, instances=(ObservedInstance("train", 0),))
    pending = tuple(a_pod(rank, phase="Pending", ready=False) for rank in (0, 1))
    starts = decide(claimed.status, 1, pods=pending, instances=(ObservedInstance("train", 0, highest_attempt=1),))
    runs = decide(starts.status, 5, pods=(a_pod(0), a_pod(1)))
    assert [told(plan) for plan in (claimed, starts, runs)] == [
        [("Normal", "PodsCreated")], [], [("Normal", "Started")],
    ]  # fmt: skip


def test_a_run_that_ends_before_it_was_seen_to_train_has_no_event_of_training() -> None:
    pods = tuple(a_pod(rank, phase="Pending", ready=False) for rank in (0, 1))
    starts = decide(started(), pods=pods)
    ended = tuple(a_pod(rank, phase="Succeeded", ready=False, exit_code=0) for rank in (0, 1))
    finishing = decide(starts.status, 5, pods=ended)
    assert (finishing.status["phase"], finishing.status["reason"], told(finishing)) == ("Running", "Finishing", [])


def test_what_the_end_of_a_run_tells_is_not_told_of_its_conditions_too() -> None:
    failed = decide(started(), pods=(a_pod(0), a_pod(1, phase="Failed", exit_code=64, message="no such key")))
    assert [reason for _, reason in told(failed)] == ["BadConfig", "Failed"]


def test_a_builds_store_and_the_drift_of_its_source_are_told() -> None:
    cache = a_dataset_cache()
    first = decide_dataset_cache(cache, ObservedBuild(now=NOW, store_error="StoreUnavailable: no answer"), SETTINGS)
    assert ("Warning", "StorageUnavailable") in told(first)
    drift = [Finding(Condition.SOURCE_DRIFT, True, "SourceChanged", "the source has changed")]
    ready = DatasetCacheStatus(phase="Ready")
    changed = replace(ready, conditions=update_conditions([], drift, generation=1, now=NOW))
    assert cache_events(ready, changed) == (EventNote("Warning", "SourceChanged", "the source has changed"),)
    assert cache_events(changed, changed) == ()


def test_why_a_build_pod_waits_is_told_once() -> None:
    cache = a_dataset_cache()
    pods = tuple(
        a_pod(index, name=f"towns-build-g1-a1-{index}", role="build", stage="", phase="Pending", ready=False,
              waiting_reason="Unschedulable", waiting_message="0/3 nodes") for index in (0, 1)
    )  # fmt: skip
    begun = decide_dataset_cache(cache, ObservedBuild(now=NOW), SETTINGS)
    assert told(begun) == [("Normal", "Building")]
    waits = decide_dataset_cache(cache, ObservedBuild(now=NOW, previous=begun.status, pods=pods), SETTINGS)
    assert told(waits) == [("Warning", "Unschedulable")]
    again = decide_dataset_cache(cache, ObservedBuild(now=NOW, previous=waits.status, pods=pods), SETTINGS)
    assert told(again) == []


def test_why_the_data_of_a_deleted_cache_stay_is_told() -> None:
    cache = a_dataset_cache(retain="Delete")
    first = decide_cache_removal(cache, ObservedBuild(now=NOW), ["TrainingRun team-a/night-drive"])
    assert told(first) == [("Normal", "Deleting")]
    fails = ObservedBuild(now=NOW, previous=first.status, store_error="StoreDenied: no right")
    assert told(decide_cache_removal(cache, fails, [])) == [("Warning", "RemovalFails")]


def test_what_is_said_of_one_reason_at_once_is_one_event() -> None:
    def stages(attempt: int) -> dict[str, Any]:
        return {"stages": [{"name": "train", "seed": seed, "attempt": attempt} for seed in (0, 1)]}

    (note,) = run_events(run_status(stages(0)), run_status(stages(1)))
    assert note == EventNote(
        "Normal", "PodsCreated", "attempt 1 of stage train, seed 0; attempt 1 of stage train, seed 1"
    )
