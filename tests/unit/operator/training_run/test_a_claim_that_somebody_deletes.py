"""`kubectl delete pvc` of a session cache ends the claim: no ended pod keeps it, no new pod waits for it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lead_operator.decisions.observed import ObservedClaim, ObservedInstance, ObservedPod, ObservedRun
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_testing.makers import NOW, SETTINGS, a_failed_pod, a_pod, a_ready_cache, a_training_run

CLAIMS = tuple(ObservedClaim(f"night-drive-cache-{rank}", f"uid-{rank}", NOW) for rank in (0, 1))
GOING = (CLAIMS[0], replace(CLAIMS[1], deleting=True))
ENDED = (a_failed_pod(0, 137), a_failed_pod(1, 137))


class Life:
    def __init__(self, **spec: Any) -> None:
        self.run = a_training_run(sessionCache={"medium": "PersistentVolume"}, **spec)
        self.plan = Plan(status={})
        self.observe(0)
        self.observe(5, *(a_pod(rank) for rank in (0, 1)))

    def observe(self, after_s: float, *pods: ObservedPod, claims: tuple[ObservedClaim, ...] = CLAIMS) -> Plan:
        observed = ObservedRun(
            now=NOW + timedelta(seconds=after_s), pods=pods, service_exists=True, caches=(a_ready_cache(),),
            instances=(ObservedInstance("train", 0),), claims=claims, previous=self.plan.status,
        )  # fmt: skip
        self.plan = decide_training_run(self.run, observed, SETTINGS)
        return self.plan

    @property
    def made(self) -> list[str]:
        return [body["metadata"]["name"] for body in self.plan.creates]

    @property
    def deleted(self) -> list[str]:
        return [pod.name for pod in self.plan.deletes]

    @property
    def ready(self) -> dict[str, Any]:
        return next(c for c in self.plan.status["conditions"] if c["type"] == "Ready")


@pytest.mark.parametrize("policy", ["Running", "None"])
def test_ended_pods_let_go_of_it_and_the_next_pod_gets_a_new_one(policy: str) -> None:
    life = Life(cleanPodPolicy=policy)
    life.observe(10, *ENDED, claims=GOING)  # deleted while the group ran; then a rank is killed
    assert life.made == ["night-drive-train-s0-a2-0"]
    assert life.deleted == ["night-drive-train-s0-a1-1"]
    second = a_pod(0, attempt=2)
    life.observe(12, ENDED[0], second, claims=GOING)
    assert (life.made, life.ready["reason"]) == ([], "ClaimTerminating")
    assert "claim night-drive-cache-1 is being deleted; a new one is created when it is gone" in life.ready["message"]
    life.observe(14, ENDED[0], second, claims=CLAIMS[:1])
    assert life.made == ["night-drive-cache-1", "night-drive-train-s0-a2-1"]


def test_one_that_is_deleted_between_two_pods_is_let_go_of_too() -> None:
    life = Life()
    life.observe(10, *ENDED)
    waiting = a_pod(1, attempt=2, phase="Pending", node="")
    life.observe(12, *ENDED, a_pod(0, attempt=2), waiting, claims=GOING)
    assert life.deleted == ["night-drive-train-s0-a1-1"]
    assert waiting.name not in life.deleted, "it has no node yet: it does not keep the claim, and takes the new one"


def test_a_pod_that_its_lost_node_cannot_remove_is_removed_by_force() -> None:
    life = Life()
    life.observe(10, *ENDED, claims=GOING)
    away = replace(ENDED[1], deleting=True, node_ready=False, node_not_ready_since=NOW)
    life.observe(59, ENDED[0], away, a_pod(0, attempt=2), claims=GOING)
    assert life.deleted == []
    life.observe(60, ENDED[0], away, a_pod(0, attempt=2), claims=GOING)
    assert [(pod.name, pod.grace_period_s) for pod in life.plan.deletes] == [(away.name, 0)]


def test_pods_that_run_keep_theirs() -> None:
    life = Life()
    life.observe(10, a_pod(0), a_pod(1), claims=GOING)
    assert (life.made, life.deleted, life.ready["reason"]) == ([], [], "Loading")
