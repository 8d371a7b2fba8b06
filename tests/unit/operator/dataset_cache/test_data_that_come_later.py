"""A build that failed for its data begins again when the source in the bucket is another, and not before."""

from datetime import timedelta
from typing import Any

import pytest

from lead_operator.bucket.build_records import read_build
from lead_operator.bucket.record_reader import Records
from lead_operator.decisions.dataset_cache.plan import decide_dataset_cache
from lead_operator.decisions.formatting import format_time
from lead_operator.decisions.observed import ObservedBuild, ObservedBuildFailure, ObservedSource
from lead_operator.decisions.plan import Plan
from lead_operator.resources.dataset_cache import DatasetCache
from lead_protocol.object_keys import BuildKeys
from lead_protocol.run_records import parse_failed_source
from lead_protocol.store.folder import FolderStore
from lead_testing.makers import CACHE_UID, NOW, SETTINGS, a_dataset_cache, a_pod

CACHE = a_dataset_cache(build={"parallelism": 1})
VOLUME = a_dataset_cache(source={"claimName": "raw"}, build={"parallelism": 1})
EMPTY, FULL = ObservedSource("0" * 64, 0), ObservedSource("f" * 64, 9)


def decide(status: dict[str, Any], *pods: Any, cache: DatasetCache = CACHE, after_s: float = 0, **seen: Any) -> Plan:
    observed = ObservedBuild(now=NOW + timedelta(seconds=after_s), pods=pods, previous=status, **seen)
    return decide_dataset_cache(cache, observed, SETTINGS)


def failed(cache: DatasetCache = CACHE, code: int = 65) -> Plan:
    building = decide({}, cache=cache).status
    pod = a_pod(0, name="towns-build-g1-a1-0", role="build", stage="", phase="Failed", exit_code=code, message="empty")
    return decide(building, pod, cache=cache)


def known(reason: str = "BadData", source: str = EMPTY.sha256, rebuilds: int = 0) -> ObservedBuildFailure:
    return ObservedBuildFailure(rebuilds, reason, "empty", format_time(NOW), source)


def message(plan: Plan) -> str:
    return str(next(c["message"] for c in plan.status["conditions"] if c["type"] == "Failed"))


def test_it_begins_again_when_files_have_come_with_a_budget_of_its_own() -> None:
    again = decide(failed().status, after_s=61, failure=known(), source=FULL)
    assert (again.status["phase"], again.status["build"]["rebuilds"]) == ("Building", 1) and again.claim_attempt
    assert [body["metadata"]["name"] for body in again.creates] == ["towns-build-g1-a2-0"]
    assert [c["status"] for c in again.status["conditions"] if c["type"] == "Failed"] == ["False"]
    assert [w["errors"] for w in again.status["build"]["workers"]] == [0]
    later = decide(again.status, after_s=65, failure=known(), source=FULL)
    assert later.status["phase"] == "Building" and not later.claim_attempt


@pytest.mark.parametrize(
    ("after_s", "failure", "seen"),
    [
        (61, known(), {"source": EMPTY}),
        (61, known(), {}),
        (61, known(source=""), {"source": FULL}),
        (59, known(), {"source": FULL}),
        (61, known(), {"source": FULL, "store_error": "StoreUnavailable: no answer"}),
        (61, known("BadConfig"), {"source": FULL}),
        (61, known("MaxRetries"), {"source": FULL}),
    ],
)
def test_nothing_else_begins_it_again(after_s: float, failure: ObservedBuildFailure, seen: dict[str, Any]) -> None:
    plan = decide(failed().status, after_s=after_s, failure=failure, **seen)
    assert plan.status["phase"] == "Failed" and not plan.creates and not plan.claim_attempt


def test_the_pause_grows_with_each_failure() -> None:
    status = failed().status
    status["build"]["rebuilds"] = 2
    third = known(rebuilds=2)
    assert decide(status, after_s=239, failure=third, source=FULL).status["phase"] == "Failed"
    assert decide(status, after_s=241, failure=third, source=FULL).status["phase"] == "Building"


def test_the_source_is_recorded_once_as_it_was_after_the_failure() -> None:
    (record,) = decide(failed().status, failure=known(source=""), source=EMPTY).records
    listed = parse_failed_source(record.data)
    assert record.key == f"control/team-a/{CACHE_UID}/source-1-000000.json"
    assert listed is not None and listed.sha256 == EMPTY.sha256
    assert decide(failed().status, failure=known(), source=EMPTY).records == ()
    assert decide(failed().status, failure=known(), source=EMPTY).requeue_after_s == 60


def test_the_source_is_recorded_within_seconds_so_a_quick_upload_is_a_change() -> None:
    unrecorded = {"failure": known(source=""), "after_s": 5}
    assert decide(failed().status, **unrecorded).requeue_after_s == 2
    assert decide(failed().status, after_s=5).requeue_after_s == 2, "the record of the failure is not read yet"
    assert decide(failed().status, failure=known(), after_s=5).requeue_after_s == 60
    assert decide(failed().status, **unrecorded, store_error="StoreUnavailable: no answer").requeue_after_s == 60
    assert decide(failed().status, failure=known(source=""), after_s=61).requeue_after_s == 60, (
        "it is too large to list"
    )


def test_a_restarted_operator_reads_what_the_source_was(tmp_path: Any) -> None:
    plan, store = failed(), FolderStore(tmp_path)
    for record in (*plan.records, *decide(plan.status, failure=known(source=""), source=EMPTY).records):
        store.create(record.key, record.data)
    found = read_build(store, Records(), BuildKeys("team-a", CACHE_UID), 1, shares=1, now=NOW).failure
    assert found is not None and (found.reason, found.source_sha256) == ("BadData", EMPTY.sha256)
    assert decide({}, after_s=61, failure=found, source=FULL).status["build"]["rebuilds"] == 1, (
        "an erased status as well"
    )


def test_the_message_says_what_helps_for_a_bucket_and_for_a_volume() -> None:
    assert "it is built again by itself when files below datasets/towns change" in message(failed())
    plan = failed(VOLUME)
    assert "a volume is not watched: to rebuild, delete the DatasetCache and create it again" in message(plan)
    held = decide(plan.status, cache=VOLUME, after_s=61, failure=known(), source=FULL)
    assert held.status["phase"] == "Failed" and held.requeue_after_s is None
