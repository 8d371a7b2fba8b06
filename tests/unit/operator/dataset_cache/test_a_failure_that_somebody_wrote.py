"""Somebody writes a failure into the status of a DatasetCache: what is recorded or remembered decides."""

from typing import Any

from lead_operator.bucket.bucket_snapshot import BucketSnapshot
from lead_operator.controllers.reported_caches import ReportedCaches
from lead_operator.decisions.dataset_cache.plan import decide_dataset_cache
from lead_operator.decisions.observed import ObservedBuild, ObservedBuildFailure
from lead_operator.decisions.plan import Plan
from lead_protocol.run_records import parse_run_end
from lead_testing.makers import CACHE_UID, NOW, SETTINGS, a_dataset_cache, a_pod
from lead_testing.parsed_statuses import cache_status

CACHE = a_dataset_cache(build={"parallelism": 1})
KEY = f"control/team-a/{CACHE_UID}/failed-1-000000.json"


def a_build_pod(**fields: Any) -> Any:
    return a_pod(0, name="towns-build-g1-a1-0", role="build", stage="", **fields)


def decide(status: dict[str, Any], *pods: Any, **seen: Any) -> Plan:
    return decide_dataset_cache(CACHE, ObservedBuild(now=NOW, pods=pods, previous=status, **seen), SETTINGS)


def building() -> dict[str, Any]:
    return decide(decide({}).status, a_build_pod()).status


def failed() -> Plan:
    return decide(building(), a_build_pod(phase="Failed", exit_code=65, message="the source is empty"))


def forged(status: dict[str, Any], end: str) -> dict[str, Any]:
    said = {"type": end, "status": "True", "reason": "Forged", "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
    others = [c for c in status["conditions"] if c["type"] != end]
    return status | {"phase": end, "reason": "Forged", "conditions": [*others, said]}


def test_a_forged_failure_changes_nothing_of_the_build() -> None:
    plan = decide(forged(building(), "Failed"), a_build_pod(), failure_disproved=True)
    assert plan.status["phase"] == "Building" and not plan.deletes and not plan.creates and not plan.records
    assert plan.status["build"] == building()["build"]


def test_a_forged_ready_begins_nothing_anew() -> None:
    plan = decide(forged(building(), "Ready"), a_build_pod())
    assert plan.status["phase"] == "Building" and not plan.deletes
    assert plan.status["build"] == building()["build"]


def test_a_true_failure_is_recorded_and_outlives_its_status() -> None:
    plan = failed()
    (record,) = plan.records
    end = parse_run_end(record.data)
    assert record.key == KEY and end is not None and end.reason == "BadData"
    known = ObservedBuildFailure(0, end.reason, end.message)
    again = decide({}, failure=known)
    assert (again.status["phase"], again.status["reason"], again.creates, again.records) == (
        "Failed",
        "BadData",
        (),
        (),
    )
    assert decide(plan.status, failure=known, failure_disproved=True).status["phase"] == "Failed"


def test_a_failure_is_not_recorded_before_the_store_takes_it() -> None:
    away = decide(building(), a_build_pod(phase="Failed", exit_code=65, message="empty"), store_error="no answer")
    assert away.status["phase"] == "Failed" and not away.records
    assert [record.key for record in decide(away.status).records] == [KEY]


def test_a_process_knows_what_it_has_decided_and_nothing_else() -> None:
    known, status = ReportedCaches(), failed().status
    assert known.disproves_failure("a", cache_status(status), BucketSnapshot())
    assert not known.disproves_failure("a", cache_status(status), BucketSnapshot(error="no answer"))
    recorded = BucketSnapshot(failure=ObservedBuildFailure(0, "BadData", ""))
    assert not known.disproves_failure("a", cache_status(status), recorded)
    known.note("a", ObservedBuild(now=NOW, previous=status), cache_status(status))
    assert known.disproves_failure("a", cache_status(status), BucketSnapshot()), "it has only seen it in the status"
    known.note("a", ObservedBuild(now=NOW, previous=building()), cache_status(status))
    assert not known.disproves_failure("a", cache_status(status), BucketSnapshot())
    known.memories.forget("a")
    assert known.disproves_failure("a", cache_status(status), BucketSnapshot())
