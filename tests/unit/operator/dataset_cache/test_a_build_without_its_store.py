"""A DatasetCache whose object store does not answer: what `kubectl get` and Ready show first names the cause."""

from datetime import timedelta
from typing import Any

import pytest

from lead_operator.decisions.dataset_cache.plan import decide_dataset_cache
from lead_operator.decisions.observed import ObservedBuild, ObservedCacheManifest, ObservedPod
from lead_operator.decisions.plan import Plan
from lead_testing.makers import DIGEST, NOW, SETTINGS, a_dataset_cache, a_pod

CACHE = a_dataset_cache()
ERROR = "StoreUnavailable: s3://lead/… at http://minio:9000: no answer"


def decide(previous: dict[str, Any] | None = None, **fields: Any) -> Plan:
    observed = ObservedBuild(now=NOW + timedelta(seconds=60), previous=previous or {}, **fields)
    return decide_dataset_cache(CACHE, observed, SETTINGS)


def shown(plan: Plan) -> tuple[str, str, str, str]:
    """Phase and reason as `kubectl get` shows them, reason and message of Ready."""
    ready = next(c for c in plan.status["conditions"] if c["type"] == "Ready")
    return plan.status["phase"], plan.status["reason"], ready["reason"], ready["message"]


def build_pods(phase: str = "Running", **fields: Any) -> tuple[ObservedPod, ...]:
    return tuple(a_pod(i, name=f"towns-build-g1-a1-{i}", role="build", stage="", phase=phase, **fields) for i in (0, 1))


def test_a_build_that_cannot_begin_is_pending_and_names_the_store() -> None:
    plan = decide(store_error=ERROR)
    phase, reason, of_ready, said = shown(plan)
    assert (phase, reason, of_ready) == ("Pending", "StorageUnavailable", "StorageUnavailable")
    assert said == f"nothing is built until the object store answers: {ERROR}; it is tried again"
    assert not plan.creates and plan.requeue_after_s
    back = decide(plan.status)
    assert (shown(back)[:2], len(back.creates)) == (("Building", "Building"), 2), "it comes back by itself"


def test_a_build_whose_store_goes_away_names_it_beside_how_far_it_is() -> None:
    begun = decide().status
    phase, reason, of_ready, said = shown(decide(begun, store_error=ERROR, pods=build_pods()))
    assert (phase, reason, of_ready) == ("Building", "StorageUnavailable", "StorageUnavailable")
    assert said.startswith("0 of 2 build pods are done; what runs goes on") and ERROR in said
    assert shown(decide(begun, pods=build_pods()))[1] == "Building"


@pytest.mark.parametrize("reason", ["Unschedulable", "ImagePullBackOff"])
def test_a_pod_that_cannot_start_is_named_before_the_store(reason: str) -> None:
    pods = build_pods("Pending", waiting_reason=reason, waiting_message="0/1 nodes")
    assert ERROR not in shown(decide(decide().status, store_error=ERROR, pods=pods))[3]


def test_a_finished_build_that_cannot_be_published_names_the_store() -> None:
    pods = build_pods("Succeeded", finished_at=NOW)
    phase, reason, _, said = shown(decide(decide().status, store_error=ERROR, pods=pods))
    assert (phase, reason) == ("Building", "StorageUnavailable")
    assert said.startswith("2 of 2 build pods are done") and ERROR in said


def test_a_cache_that_is_ready_stays_so() -> None:
    manifest = ObservedCacheManifest(DIGEST, 17, 9, {}, 1234, 12, 1288490189)
    ready = decide(result_digest=DIGEST, manifest=manifest).status
    assert shown(decide(ready, store_error=ERROR))[:2] == ("Ready", "Complete")
