"""A wrong trainer image or pull secret, corrected in the chart, heals runs and builds whose pods never started."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lead_operator.decisions.dataset_cache.plan import decide_dataset_cache
from lead_operator.decisions.observed import ObservedBuild, ObservedInstance, ObservedPod, ObservedRun
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.objects.training_pod import build_training_pod
from lead_protocol.job import DatasetSource
from lead_testing.makers import (
    DIGEST,
    NOW,
    PROFILE,
    SETTINGS,
    a_dataset_cache,
    a_pod,
    a_ready_cache,
    a_training_run,
)

WRONG = replace(SETTINGS, trainer_image="registry.example/lead-trainer:wrong")
RUN = a_training_run()
STUCK: dict[str, Any] = {
    "phase": "Pending", "ready": False, "started_at": None, "waiting_reason": "ImagePullBackOff", "pulls": WRONG.pulls,
}  # fmt: skip


def decide(*pods: ObservedPod, status: dict[str, Any], after_s: float, settings: Any = SETTINGS) -> Plan:
    observed = ObservedRun(
        now=NOW + timedelta(seconds=after_s), pods=pods, service_exists=True, caches=(a_ready_cache(),),
        instances=(ObservedInstance("train", 0),), previous=status,
    )  # fmt: skip
    return decide_training_run(RUN, observed, settings)


def begun() -> dict[str, Any]:
    return decide(status={}, after_s=0, settings=WRONG).status


def test_a_pod_is_told_with_what_it_was_created() -> None:
    pod = build_training_pod(
        RUN,
        RUN.instances[0],
        attempt=1,
        rank=0,
        datasets={"towns": DatasetSource(name="towns", digest=DIGEST)},
        profile=PROFILE,
        settings=WRONG,
    )
    assert pod["metadata"]["annotations"]["lead.dev/pulls"] == "registry.example/lead-trainer:wrong IfNotPresent"


@pytest.mark.parametrize("reason", ["ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull"])
def test_pods_that_could_not_start_are_created_again_and_it_costs_no_budget(reason: str) -> None:
    stuck = tuple(a_pod(rank, **{**STUCK, "waiting_reason": reason}) for rank in (0, 1))
    plan = decide(*stuck, status=begun(), after_s=100)
    assert [pod.name for pod in plan.deletes] == [pod.name for pod in stuck]
    failure = plan.status["lastFailure"]
    assert failure["reason"] == "ImageChanged" and WRONG.trainer_image in failure["message"]
    assert SETTINGS.trainer_image in failure["message"]
    again = decide(status=plan.status, after_s=101)
    assert [body["metadata"]["name"][-4:] for body in again.creates] == ["a2-0", "a2-1"]
    restarts = again.status["restarts"]
    assert (restarts["program"], restarts["infrastructure"], restarts["voluntary"]) == (0, 0, 1)


@pytest.mark.parametrize(
    "pod",
    [
        a_pod(0, pulls=WRONG.pulls),  # it runs
        a_pod(0, **{**STUCK, "pulls": SETTINGS.pulls}),  # nothing was corrected
        a_pod(0, **{**STUCK, "pulls": ""}),
        a_pod(0, **{**STUCK, "waiting_reason": "Unschedulable"}),  # it may have a place in a queue
    ],
    ids=["runs", "same values", "unknown", "waits for another thing"],
)
def test_no_other_pod_is_touched_by_an_upgrade(pod: ObservedPod) -> None:
    plan = decide(pod, a_pod(1, pulls=WRONG.pulls), status=begun(), after_s=100)
    assert (plan.deletes, plan.claim_attempt, plan.status.get("lastFailure")) == ((), False, None)


def test_a_corrected_pull_secret_counts_as_another_value() -> None:
    secret = replace(SETTINGS, image_pull_secrets=("registry",))
    stuck = tuple(a_pod(rank, **{**STUCK, "pulls": SETTINGS.pulls}) for rank in (0, 1))
    assert len(decide(*stuck, status=begun(), after_s=100, settings=secret).deletes) == 2


def test_a_build_is_healed_alike() -> None:
    cache = a_dataset_cache()
    status = decide_dataset_cache(cache, ObservedBuild(now=NOW), WRONG).status
    stuck = tuple(
        a_pod(index, name=f"towns-build-g1-a1-{index}", role="build", stage="", **STUCK)
        for index in range(cache.parallelism)
    )
    seen = ObservedBuild(now=NOW + timedelta(seconds=90), pods=stuck, previous=status)
    plan = decide_dataset_cache(cache, seen, SETTINGS)
    assert {pod.name for pod in plan.deletes} == {pod.name for pod in stuck}
    again = decide_dataset_cache(cache, ObservedBuild(now=NOW + timedelta(seconds=95), previous=plan.status), SETTINGS)
    assert len(again.creates) == cache.parallelism
