"""Containers that a webhook adds (a mesh's proxy) keep a pod running when its work has ended; that holds up nothing."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lead_operator.decisions.dataset_cache.plan import decide_dataset_cache
from lead_operator.decisions.observed import (
    ObservedBuild,
    ObservedCacheManifest,
    ObservedInstance,
    ObservedPod,
    ObservedRun,
)
from lead_operator.decisions.plan import Plan, PodToDelete
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.resources.training_run import TrainingRun
from lead_testing.makers import (
    DIGEST,
    NOW,
    SETTINGS,
    a_dataset_cache,
    a_failed_pod,
    a_pod,
    a_ready_cache,
    a_training_run,
)


def decide(run: TrainingRun, previous: dict[str, Any], *pods: ObservedPod) -> Plan:
    seen: dict[str, Any] = {"caches": (a_ready_cache(),), "service_exists": True}
    bucket = (ObservedInstance("train", 0),)
    observed = ObservedRun(now=NOW + timedelta(seconds=30), pods=pods, previous=previous, instances=bucket, **seen)
    return decide_training_run(run, observed, SETTINGS)


def begun(run: TrainingRun) -> dict[str, Any]:
    return decide(run, decide(run, {}).status, a_pod(0), a_pod(1)).status


def names(plan: Plan) -> set[str]:
    return {pod.name for pod in plan.deletes}


def test_a_failed_rank_is_seen_and_its_pod_is_stopped_once_its_end_is_booked() -> None:
    run = a_training_run()
    failed = a_failed_pod(1, kept_by_sidecar=True)
    plan = decide(run, begun(run), a_pod(0), failed)
    assert plan.claim_attempt and plan.status["stages"][0]["restartState"]["endedAttempt"] == 1
    assert names(plan) == {a_pod(0).name, failed.name}
    again = decide(run, plan.status, replace(failed, deleting=True))
    assert again.claim_attempt and again.status["stages"][0]["attempt"] == 2
    assert failed.name not in names(again)


def test_a_rank_that_is_done_before_the_others_is_left_until_the_attempt_has_ended() -> None:
    run = a_training_run()
    assert not decide(run, begun(run), a_pod(0), a_pod(1, phase="Succeeded", kept_by_sidecar=True)).deletes


@pytest.mark.parametrize("policy", ["Running", "All", "None"])
def test_when_a_run_ends_no_such_pod_is_kept(policy: str) -> None:
    run = a_training_run(cleanPodPolicy=policy)
    pods = (a_failed_pod(0, 64, kept_by_sidecar=True), a_failed_pod(1, 81, kept_by_sidecar=True))
    ended = decide(run, begun(run), *pods)
    assert ended.status["reason"] == "BadConfig" and ended.claim_attempt
    assert ended.deletes == decide(run, ended.status, *pods).deletes == tuple(PodToDelete(p.name, p.uid) for p in pods)


def test_a_suspended_run_keeps_no_such_pod() -> None:
    run = a_training_run()
    pods = tuple(a_failed_pod(rank, 75, kept_by_sidecar=True) for rank in (0, 1))
    plan = decide(replace(run, suspend=True), begun(run), *pods)
    assert (plan.status["phase"], names(plan), plan.claim_attempt) == ("Suspended", {p.name for p in pods}, True)


def a_build_pod(index: int, **fields: Any) -> ObservedPod:
    return a_pod(index, name=f"towns-build-g1-a1-{index}", role="build", stage="", **fields)


def test_a_kept_build_pod_stays_until_the_cache_is_ready_and_a_failed_one_goes() -> None:
    cache = a_dataset_cache()
    first = decide_dataset_cache(cache, ObservedBuild(now=NOW), SETTINGS).status
    pods = (
        a_build_pod(0, phase="Succeeded", kept_by_sidecar=True),
        a_build_pod(1, phase="Failed", kept_by_sidecar=True),
    )
    seen = ObservedBuild(now=NOW, previous=first, pods=pods)
    plan = decide_dataset_cache(cache, seen, SETTINGS)
    assert plan.claim_attempt and [worker["attempt"] for worker in plan.status["build"]["workers"]] == [1, 2]
    assert names(plan) == {"towns-build-g1-a1-1"}
    manifest = ObservedCacheManifest(DIGEST, 17, 9, {}, 1234, 12, 2048)
    complete = replace(seen, previous=plan.status, result_digest=DIGEST, manifest=manifest)
    ready = decide_dataset_cache(cache, complete, SETTINGS)
    assert (ready.status["phase"], names(ready)) == ("Ready", {"towns-build-g1-a1-0", "towns-build-g1-a1-1"})
