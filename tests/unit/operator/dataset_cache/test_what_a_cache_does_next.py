"""Tables of `decide_dataset_cache`: what is seen, and what follows."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lead_operator.decisions.dataset_cache.plan import decide_dataset_cache
from lead_operator.decisions.dataset_cache.state import build_generation
from lead_operator.decisions.observed import (
    BuildReport,
    ObservedBuild,
    ObservedCacheManifest,
    ObservedPod,
    ObservedSource,
)
from lead_operator.decisions.plan import Plan
from lead_operator.resources.crd_defaults import fill_defaults
from lead_operator.resources.dataset_cache import DatasetCache
from lead_protocol.progress_record import BuildRecord
from lead_testing.makers import DIGEST, NOW, SETTINGS, a_cache_body, a_dataset_cache, a_pod
from lead_testing.parsed_statuses import cache_status

MANIFEST = ObservedCacheManifest(DIGEST, 17, 9, {"too short": 8}, 1234, 12, 1288490189)
COMPLETE: dict[str, Any] = {"result_digest": DIGEST, "manifest": MANIFEST}


def decide(cache: DatasetCache, *, after_s: float = 0, previous: dict[str, Any] | None = None, **fields: Any) -> Plan:
    now = NOW + timedelta(seconds=after_s)
    reports = tuple(BuildReport(index, record, now) for index, record in enumerate(fields.pop("records", ())))
    plan = decide_dataset_cache(
        cache, ObservedBuild(now=now, previous=previous or {}, reports=reports, **fields), SETTINGS
    )
    fill_defaults({**a_cache_body(), "status": plan.status})  # the CRD knows every field of the status
    return plan


def a_build_pod(index: int, attempt: int = 1, generation: int = 1, **fields: Any) -> ObservedPod:
    name = f"towns-build-g{generation}-a{attempt}-{index}"
    return a_pod(index, name=name, role="build", stage="", attempt=attempt, **fields)


def made(plan: Plan) -> list[str]:
    return [o["metadata"]["name"] for o in plan.creates]


def condition(plan: Plan, kind: str) -> dict[str, Any]:
    return next((c for c in plan.status["conditions"] if c["type"] == kind), {})


def test_a_new_cache_claims_and_makes_one_pod_a_share() -> None:
    plan = decide(a_dataset_cache())
    assert plan.claim_attempt
    assert made(plan) == ["towns-build-g1-a1-0", "towns-build-g1-a1-1"]
    assert plan.status["phase"] == "Building"


def test_the_columns_tell_how_far_the_build_is() -> None:
    cache = a_dataset_cache()
    common: dict[str, Any] = {"attempt": 1, "seq": 3, "phase": "Building", "digest": DIGEST, "shards_total": 12}
    counts: dict[str, Any] = {"routes_total": 17, "routes_kept": 9, "samples": 1234}
    records = tuple(BuildRecord(**common, **counts, shards_done=n, size_bytes=2**20) for n in (3, 4))
    plan = decide(cache, previous=decide(cache).status, records=records, pods=(a_build_pod(0), a_build_pod(1)))
    status = plan.status
    assert (status["routes"], status["samples"]) == ({"kept": 9, "total": 17}, 1234)
    assert (status["shards"], status["percent"], status["sizeBytes"]) == ({"done": 7, "total": 12}, 58, 2**21)
    assert status["display"] == {"routes": "9/17", "shards": "7/12", "size": "2.0Mi", "digest": "d1" * 6}


def test_rate_and_time_left_move_with_news_and_not_with_the_clock() -> None:
    cache, pods = a_dataset_cache(), (a_build_pod(0), a_build_pod(1))

    def shards(done: int) -> tuple[BuildRecord, ...]:
        common: dict[str, Any] = {"attempt": 1, "phase": "Building", "digest": DIGEST, "shards_total": 12}
        return (BuildRecord(**common, seq=done, shards_done=done, size_bytes=done * 60 * 2**20),)

    status = decide(cache).status
    told = []
    for after_s, done in [(0, 2), (20, 3), (40, 4), (60, 4), (90, 4), (100, 6)]:
        status = decide(cache, after_s=after_s, previous=status, records=shards(done), pods=pods).status
        speed, display = status["build"]["speed"], status["display"]
        told.append((speed["shards"], display.get("rate"), display.get("eta")))
    first, second = (4, "3.0Mi/s", "2m40s"), (6, "2.0Mi/s", "3m0s")
    assert told == [(2, None, None), (2, None, None), first, first, first, second]
    message = next(c["message"] for c in status["conditions"] if c["type"] == "Ready")
    assert message == "0 of 2 build pods are done, 6 of 12 shards are complete, about 3m0s are left at 2.0Mi/s"
    assert "speed" not in decide(cache, previous=status, **COMPLETE).status["build"]


def test_pods_that_tell_how_fast_they_are_tell_what_a_person_waits_for() -> None:
    cache, pods = a_dataset_cache(), (a_build_pod(0), a_build_pod(1))

    def packed(*samples: int) -> tuple[BuildRecord, ...]:
        common: dict[str, Any] = {"attempt": 1, "seq": 1, "phase": "Building", "digest": DIGEST, "shards_total": 12}
        return tuple(
            BuildRecord(**common, share_samples=600, samples_done=n, samples_per_s=5.0, eta_s=(600 - n) / 5)
            for n in samples
        )

    status = decide(cache, records=packed(100, 100), pods=pods).status
    told = []
    for after_s, samples in [(20, (200, 190)), (40, (300, 250)), (60, (300, 250)), (90, (300, 250)), (95, (450, 300))]:
        status = decide(cache, after_s=after_s, previous=status, records=packed(*samples), pods=pods).status
        speed, display = status["build"]["speed"], status["display"]
        told.append((speed["samples"], display["rate"], display["eta"]))  # the slowest share is what remains
    assert told == [(200, "10.0/s", "1m40s"), *[(550, "10.0/s", "1m10s")] * 3, (750, "10.0/s", "1m0s")]
    message = next(c["message"] for c in status["conditions"] if c["type"] == "Ready")
    assert message == (
        "0 of 2 build pods are done, 0 of 12 shards are complete, 750 of 1200 samples are packed, "
        "about 1m0s are left at 10.0/s"
    )


def test_a_source_that_changed_is_told_and_nothing_is_built_until_the_spec_changes() -> None:
    cache = a_dataset_cache()
    manifest = replace(MANIFEST, source_sha256="a" * 64)
    complete: dict[str, Any] = {"result_digest": DIGEST, "manifest": manifest}
    ready = decide(cache, source=ObservedSource("a" * 64, 170), **complete)
    assert (condition(ready, "SourceDrift")["status"], condition(ready, "Ready")["status"]) == ("False", "True")
    drifted = decide(cache, previous=ready.status, source=ObservedSource("b" * 64, 171), **complete)
    assert (condition(drifted, "SourceDrift")["status"], drifted.status["phase"]) == ("True", "Ready")
    assert "it has 171 files now" in condition(drifted, "SourceDrift")["message"]
    assert not drifted.creates and drifted.urgent
    unseen = decide(cache, **complete)
    assert not condition(unseen, "SourceDrift")
    restarted = decide(cache, previous=drifted.status, after_s=60, **complete)
    assert restarted.status == drifted.status, "an operator that has not listed the source yet unsays nothing"
    rebuilt = decide(a_dataset_cache(generation=2, config={"stride": 2}), previous=drifted.status)
    assert made(rebuilt) == ["towns-build-g2-a1-0", "towns-build-g2-a1-1"]


def test_routes_that_changed_are_named_and_by_the_next_operator_too() -> None:
    cache, manifest = a_dataset_cache(), replace(MANIFEST, source_sha256="a" * 64)
    complete: dict[str, Any] = {"result_digest": DIGEST, "manifest": manifest}
    added = tuple(f"data/Accident/r{number}" for number in range(1, 7))
    source = ObservedSource("b" * 64, 171, added=added, replaced=("x" * 300,))
    drifted = decide(cache, source=source, **complete)
    said = condition(drifted, "SourceDrift")["message"]
    assert "6 added (data/Accident/r1, data/Accident/r2, data/Accident/r3, +3 more), 1 changed (…xxx" in said
    assert "removed" not in said
    assert len(said) < 500
    after_restart = decide(cache, previous=drifted.status, source=ObservedSource("b" * 64, 171), **complete)
    assert after_restart.status == drifted.status
    condition(after_restart, "SourceDrift")["message"] = f"{said.partition('; runs')[0]}; to build it, raise maxRetries"
    by_today = decide(cache, previous=after_restart.status, source=ObservedSource("b" * 64, 171), **complete)
    assert condition(by_today, "SourceDrift")["message"] == said, "advice of an earlier release has had its time"
    more = decide(cache, previous=drifted.status, source=ObservedSource("c" * 64, 172), **complete)
    assert "it has 172 files now" in condition(more, "SourceDrift")["message"]
    assert "added (" not in condition(more, "SourceDrift")["message"]


def test_a_cache_is_ready_when_its_manifest_exists() -> None:
    plan = decide(a_dataset_cache(), used_by=("a", "b", "c"), **COMPLETE)
    assert (plan.status["phase"], condition(plan, "Ready")["status"]) == ("Ready", "True")
    assert [plan.status["display"][key] for key in ("shards", "size", "routes")] == ["12/12", "1.2Gi", "9/17"]
    assert plan.status["routeReasons"] == {"too short": 8}
    assert plan.status["display"]["usedBy"] == "a +2"
    assert plan.status["uri"] == f"s3://lead/caches/team-a/{DIGEST}/"
    assert not plan.creates and not plan.claim_attempt
    assert decide(a_dataset_cache(), after_s=99, previous=plan.status, used_by=("a", "b", "c"), **COMPLETE).status == (
        plan.status
    )


def test_one_failed_share_is_tried_again_on_its_own() -> None:
    cache = a_dataset_cache()
    pods = (a_build_pod(0), a_build_pod(1, phase="Failed", exit_code=1))
    plan = decide(cache, after_s=5, previous=decide(cache).status, pods=pods)
    assert plan.claim_attempt
    assert made(plan) == ["towns-build-g1-a2-1"]
    assert not plan.deletes
    assert [w["errors"] for w in plan.status["build"]["workers"]] == [0, 1]


def test_a_damaged_file_fails_the_build_and_is_named() -> None:
    cache = a_dataset_cache()
    reports = "routes/Town03/x/metas/0007.pkl ends after 12 bytes; upload it again"
    pods = (a_build_pod(0), a_build_pod(1, phase="Failed", exit_code=65, message=reports))
    plan = decide(cache, previous=decide(cache).status, pods=pods)
    assert (plan.status["phase"], plan.status["reason"]) == ("Failed", "BadData")
    assert condition(plan, "Failed")["message"].startswith(f"{reports}; correct the data of spec.source")
    assert [d.name for d in plan.deletes] == ["towns-build-g1-a1-0"]
    assert plan.claim_attempt, "the verdict is written before the pods go: without them, another would follow"
    assert decide(cache, after_s=99, previous=plan.status).status["phase"] == "Failed"


@pytest.mark.parametrize(
    ("code", "reason", "remedy"),
    [
        (64, "BadConfig", "correct the spec: a changed one is built again by itself"),
        (69, "NoSuchRecipe", "spec.recipe is fixed: delete the DatasetCache, and create it again with a recipe"),
        (77, "StoreDenied", "correct the key in Secret lead-s3-default of namespace team-a, what the store lets it do"),
        (65, "BadData", "correct the data of spec.source, or the spec; it is built again by itself when files below"),
    ],
)
def test_the_remedy_of_a_failed_build_follows_its_reason(code: int, reason: str, remedy: str) -> None:
    cache = a_dataset_cache()
    pods = (a_build_pod(0, phase="Failed", exit_code=code, message="it is wrong"),)
    plan = decide(cache, previous=decide(cache).status, pods=pods)
    told = condition(plan, "Failed")
    assert told["reason"] == reason and remedy in told["message"]
    assert "maxRetries" not in told["message"]
    assert ("to rebuild" if code == 77 else "more tries would fail alike") in told["message"]


def test_a_build_that_waits_for_a_node_gets_the_remedy_of_a_build() -> None:
    cache = a_dataset_cache()
    waits: dict[str, Any] = {"phase": "Pending", "node": "", "waiting_reason": "Unschedulable"}
    pods = tuple(a_build_pod(index, waiting_message="0/1 nodes: 1 Insufficient memory.", **waits) for index in (0, 1))
    told = condition(decide(cache, previous=decide(cache).status, pods=pods), "Ready")
    assert "ask for less in build.resources, which may be changed in place" in told["message"]
    assert "create a run" not in told["message"] and "no node has enough" not in told["message"]


def test_errors_of_one_share_end_the_build_at_max_retries() -> None:
    cache = a_dataset_cache(build={"parallelism": 1, "maxRetries": 2})
    status, after_s, failed = decide(cache).status, 0, 0
    for attempt in range(1, 9):
        after_s += 300
        pods = (a_build_pod(0, attempt, phase="Failed", exit_code=1),)
        status = decide(cache, after_s=after_s, previous=status, pods=pods).status
        failed = attempt
        if status["phase"] == "Failed":
            break
    assert (failed, status["reason"]) == (3, "MaxRetries")


def test_a_source_that_changed_while_it_was_read_is_read_again() -> None:
    cache = a_dataset_cache()
    pods = tuple(a_build_pod(i, phase="Succeeded") for i in (0, 1))
    early = decide(cache, after_s=2, previous=decide(cache).status, pods=pods)
    assert not early.claim_attempt and early.status["reason"] == "Finishing"
    late = decide(cache, after_s=20, previous=early.status, pods=pods)
    again = decide(cache, after_s=21, previous=late.status, pods=pods)
    assert made(again) == ["towns-build-g1-a2-0", "towns-build-g1-a2-1"]
    assert again.status["build"]["rebuilds"] == 1


def test_a_changed_spec_is_built_anew_after_the_old_pods_are_gone() -> None:
    ready = decide(a_dataset_cache(), **COMPLETE).status
    changed = a_dataset_cache(generation=2, config={"stride": 2})
    old = a_build_pod(0)
    waiting = decide(changed, previous=ready, pods=(old,))
    assert [d.name for d in waiting.deletes] == ["towns-build-g1-a1-0"] and not waiting.creates
    plan = decide(changed, previous=waiting.status)
    assert made(plan) == ["towns-build-g2-a1-0", "towns-build-g2-a1-1"]


UNCHANGED_RESULT: list[dict[str, Any]] = [
    {"retain": "Delete"},
    {"expectDigest": DIGEST},
    {"build": {"parallelism": 3, "maxRetries": 9, "nodeSelector": {"disk": "ssd"}}},
]


@pytest.mark.parametrize("changed", UNCHANGED_RESULT)
def test_a_ready_cache_stays_ready_over_a_change_that_does_not_change_its_result(changed: dict[str, Any]) -> None:
    """Its raw data may be gone: the build of the first generation is what answers."""
    status = decide(a_dataset_cache(), **COMPLETE).status
    for generation in (2, 3):
        cache = a_dataset_cache(generation=generation, **changed)
        assert build_generation(cache, cache_status(status)) == 1
        plan = decide(cache, previous=status, **COMPLETE)
        status = plan.status
        assert (status["phase"], status["observedGeneration"], status["digest"]) == ("Ready", generation, DIGEST)
        assert (status["build"]["generation"], made(plan), plan.claim_attempt) == (1, [], False)
        assert decide(cache, previous=status, store_error="no answer").status["phase"] == "Ready"
    emptied = decide(cache, previous=status)
    assert {name.rsplit("-a1-")[0] for name in made(emptied)} == {"towns-build-g3"}


def test_an_older_build_still_answers_after_a_time_without_its_storage_profile() -> None:
    status = decide(a_dataset_cache(), **COMPLETE).status
    cache = a_dataset_cache(generation=2, retain="Delete")
    away = replace(SETTINGS, storage_profiles={})
    for after_s in (0, 60):
        observed = ObservedBuild(now=NOW + timedelta(seconds=after_s), previous=status)
        status = decide_dataset_cache(cache, observed, away).status
        assert (status["phase"], status["reason"]) == ("Pending", "UnknownStorageProfile")
        assert build_generation(cache, cache_status(status)) == 1
    plan = decide(cache, previous=status, store_error="no answer")
    assert (plan.status["phase"], plan.status["reason"], made(plan)) == ("Pending", "StorageUnavailable", [])
    again = decide(cache, previous=plan.status, **COMPLETE).status
    assert (again["phase"], again["build"]["generation"], again["digest"]) == ("Ready", 1, DIGEST)
    emptied = decide(cache, previous=plan.status)
    assert made(emptied) == ["towns-build-g2-a1-0", "towns-build-g2-a1-1"]


@pytest.mark.parametrize(
    "changed", [{"source": {"prefix": "datasets/other"}}, {"collections": ["full_pretrain"]}, {"config": {"stride": 2}},
                {"expectDigest": "e" * 64}],
)  # fmt: skip
def test_what_changes_the_result_is_built_anew_an_unfinished_build_by_any_change(changed: dict[str, Any]) -> None:
    ready, building = decide(a_dataset_cache(), **COMPLETE).status, decide(a_dataset_cache()).status
    assert made(decide(a_dataset_cache(generation=2, **changed), previous=ready))[0] == "towns-build-g2-a1-0"
    assert build_generation(a_dataset_cache(generation=2), cache_status(building)) == 2


def test_another_digest_than_the_pinned_one_fails() -> None:
    plan = decide(a_dataset_cache(expectDigest="e" * 64), **COMPLETE)
    assert (plan.status["phase"], plan.status["reason"]) == ("Failed", "DigestMismatch")


def test_an_outage_of_the_store_leaves_a_ready_cache_ready() -> None:
    cache = a_dataset_cache()
    ready = decide(cache, **COMPLETE).status
    plan = decide(cache, after_s=60, previous=ready, store_error="StoreUnavailable: no answer")
    assert plan.status["phase"] == "Ready"
    assert plan.status["samples"] == 1234
    assert condition(plan, "StorageAvailable")["status"] == "False"


def test_a_cache_whose_bucket_was_emptied_is_built_again() -> None:
    cache = a_dataset_cache()
    ready = decide(cache, **COMPLETE).status
    plan = decide(cache, after_s=60, previous=ready)
    assert (plan.status["phase"], len(plan.creates)) == ("Building", 2)


def test_an_unknown_storage_profile_is_a_condition() -> None:
    cache = replace(a_dataset_cache(), storage_profile="defualt")
    plan = decide(cache, profile_error="unknown")
    assert plan.status["phase"] == "Pending"
    for kind in ("Accepted", "Ready"):
        told = condition(plan, kind)
        assert (told["status"], told["reason"]) == ("False", "UnknownStorageProfile")
        assert (
            "spec.storageProfile is 'defualt', which is not defined; did you mean default? known are: default"
            in (told["message"])
        )


def test_a_spec_that_makes_invalid_pods_fails_its_build_until_the_spec_changes() -> None:
    said = 'Pod "x" is invalid: spec.tolerations[0].operator: Invalid value: v'
    build = {"parallelism": 2, "tolerations": [{"key": "gpu", "value": "v", "operator": "Exists"}]}
    cache = a_dataset_cache(build=build)
    failed = decide(cache, previous=decide(cache).status, apply_error=f"Pod x: {said}")
    assert (failed.status["phase"], failed.status["reason"]) == ("Failed", "BadSpec")
    assert "spec.build.tolerations[0].operator" in condition(failed, "Accepted")["message"]
    assert decide(cache, previous=failed.status).status == failed.status
    again = decide(a_dataset_cache(generation=2), previous=failed.status)
    assert (again.status["phase"], made(again)) == ("Building", ["towns-build-g2-a1-0", "towns-build-g2-a1-1"])


def test_refused_build_pods_are_told_with_a_remedy() -> None:
    cache = a_dataset_cache()
    said = 'Pod towns-build-g1-a1-0: pods "x" is forbidden: exceeded quota: none, requested: pods=1'
    plan = decide(cache, previous=decide(cache).status, apply_error=said)
    assert (plan.status["phase"], plan.status["reason"]) == ("Building", "ObjectsRefused")
    assert "exceeded quota" in condition(plan, "Ready")["message"]
    assert "raise the ResourceQuota" in condition(plan, "Ready")["message"]
    assert not plan.claim_attempt and len(made(plan)) == 2
    taken = decide(cache, previous=plan.status, pods=(a_build_pod(0), a_build_pod(1)))
    assert taken.status["reason"] == "Building"


@pytest.mark.parametrize("seen", [(), (0,), (0, 1)])
def test_after_a_crash_behind_the_claim_only_missing_pods_are_made(seen: tuple[int, ...]) -> None:
    cache = a_dataset_cache()
    plan = decide(cache, previous=decide(cache).status, pods=tuple(a_build_pod(i) for i in seen))
    assert not plan.claim_attempt
    assert made(plan) == [f"towns-build-g1-a1-{i}" for i in (0, 1) if i not in seen]
