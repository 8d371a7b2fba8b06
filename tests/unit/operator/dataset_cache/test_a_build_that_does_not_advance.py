"""A build that waits for nobody: a pod that says nothing new is replaced, one that does not start is told with why."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lead_operator.bucket.build_records import read_build
from lead_operator.bucket.record_reader import Records
from lead_operator.decisions.dataset_cache.health import HANG_S
from lead_operator.decisions.dataset_cache.plan import MAX_INFRASTRUCTURE_FAILURES, decide_dataset_cache
from lead_operator.decisions.observed import BuildReport, ObservedBuild, ObservedPod
from lead_operator.decisions.plan import Plan
from lead_operator.resources.crd_defaults import fill_defaults
from lead_protocol.object_keys import BuildKeys
from lead_protocol.progress_record import BuildRecord
from lead_protocol.store.folder import FolderStore
from lead_testing.makers import NOW, SETTINGS, a_cache_body, a_dataset_cache, a_pod

CACHE = a_dataset_cache()


def a_build_pod(index: int, attempt: int = 1, **fields: Any) -> ObservedPod:
    name = f"towns-build-g1-a{attempt}-{index}"
    return a_pod(index, name=name, role="build", stage="", attempt=attempt, **fields)


def a_record(seq: int = 1, attempt: int = 1, **fields: Any) -> BuildRecord:
    values: dict[str, Any] = {"phase": "Building", "share_samples": 600, "samples_done": 250} | fields
    return BuildRecord(attempt=attempt, seq=seq, **values)


GROUP = (a_build_pod(0), a_build_pod(1))


class Watched:
    """A build by two pods that is looked at again and again; each share's word is given with when it was new."""

    def __init__(self) -> None:
        self.plan = Plan(status={})
        self.observe(0, ())
        self.observe(0)

    def observe(
        self, after_s: float, pods: tuple[ObservedPod, ...] = GROUP, new_at: tuple[float, ...] = (), **seen: Any
    ) -> Plan:
        reports = tuple(BuildReport(index, a_record(), NOW + timedelta(seconds=at)) for index, at in enumerate(new_at))
        seen = {"reports": reports} | seen
        observed = ObservedBuild(now=NOW + timedelta(seconds=after_s), pods=pods, previous=self.plan.status, **seen)
        self.plan = decide_dataset_cache(CACHE, observed, SETTINGS)
        fill_defaults({**a_cache_body(), "status": self.plan.status})
        return self.plan

    @property
    def failure(self) -> dict[str, Any]:
        return dict(self.plan.status.get("lastFailure") or {})

    @property
    def not_ready(self) -> tuple[str, str]:
        found = next(c for c in self.plan.status["conditions"] if c["type"] == "Ready")
        return found["reason"], found["message"]


def test_a_build_that_is_killed_for_memory_gets_advice_for_caches() -> None:
    """No cache has a checkpoint to go on from, nor batches."""
    watched = Watched()
    killed = a_build_pod(1, phase="Failed", exit_code=137, reason="OOMKilled")
    watched.observe(60, (GROUP[0], killed), new_at=(30, 40))
    text = watched.failure["message"]
    assert watched.failure["reason"] == "OOMKilled" and watched.failure["class"] == "ProgramError"
    assert "its last report was Building, 250 of 600 samples of its share" in text
    assert "a data file of spec.source may be crafted" in text and "raise build.resources.limits.memory" in text
    assert not any(word in text for word in ("checkpoint", "batch", "create a run"))


def test_a_build_pod_that_says_nothing_new_is_replaced_as_a_disturbance() -> None:
    watched = Watched()
    watched.observe(100 + HANG_S - 1, new_at=(1000, 100))
    assert not watched.failure
    plan = watched.observe(100 + HANG_S, new_at=(1000, 100))
    assert [pod.name for pod in plan.deletes] == [GROUP[1].name]
    assert plan.claim_attempt, "its end is written before the pod goes"
    workers = plan.status["build"]["workers"]
    assert [(w["errors"], w["infrastructureFailures"], w["endedAttempt"]) for w in workers] == [(0, 0, 0), (0, 1, 1)]
    gone = watched.observe(110 + HANG_S, GROUP[:1], new_at=(1900, 100))
    assert [body["metadata"]["name"] for body in gone.creates] == ["towns-build-g1-a2-1"]


def test_the_pod_that_fell_silent_is_named_with_its_node_and_its_last_word() -> None:
    watched = Watched()
    plan = watched.observe(HANG_S, new_at=(0, 1000))
    assert (watched.failure["reason"], watched.failure["class"]) == ("Hung", "Infrastructure")
    assert (watched.failure["pod"], watched.failure["node"]) == (GROUP[0].name, "node-0")
    said = watched.failure["message"]
    assert said.startswith(f"pod {GROUP[0].name} on node node-0 reported no progress for 1800 s; ")
    assert "its last report was Building, 250 of 600 samples of its share" in said and "spec.source" in said
    assert [(note.type, note.reason) for note in plan.events] == [("Warning", "Hung")]


def test_a_silent_pod_is_replaced_whatever_an_earlier_attempt_reported() -> None:
    watched = Watched()
    watched.observe(HANG_S)
    assert "it has reported nothing at all" in watched.failure["message"]
    assert [w["infrastructureFailures"] for w in watched.plan.status["build"]["workers"]] == [1, 1]
    watched.observe(HANG_S + 10, ())
    begun = NOW + timedelta(seconds=HANG_S + 20)
    again = tuple(a_build_pod(index, attempt=2, created_at=begun, started_at=begun) for index in (0, 1))
    watched.observe(HANG_S + 30, again, new_at=(0, 0))
    assert [w["infrastructureFailures"] for w in watched.plan.status["build"]["workers"]] == [1, 1]


def test_a_pod_that_repeats_itself_and_one_that_is_told_to_stop_are_not_hung() -> None:
    watched = Watched()
    stopping = replace(GROUP[1], deleting=True, grace_ends_at=NOW + timedelta(seconds=10 * HANG_S))
    watched.observe(10 * HANG_S - 1, (GROUP[0], stopping), new_at=(9.5 * HANG_S, 0))
    assert not watched.failure


def test_a_long_outage_of_the_store_hangs_no_build() -> None:
    watched = Watched()
    for after_s in (10, 5000):
        watched.observe(after_s, store_error="StoreUnavailable: no answer", reports=())
    watched.observe(5010, new_at=(5, 5))  # the mailboxes still hold the reports of before
    watched.observe(5009 + HANG_S, new_at=(5, 5))
    assert not watched.failure
    watched.observe(5010 + HANG_S, new_at=(5, 5))
    assert watched.failure["reason"] == "Hung"


@pytest.mark.parametrize("skew_s", [-7200, 7200])
def test_a_node_whose_clock_is_wrong_is_no_hang(skew_s: int) -> None:
    watched = Watched()
    skewed = tuple(replace(pod, started_at=NOW + timedelta(seconds=skew_s)) for pod in GROUP)
    watched.observe(HANG_S - 1, skewed)
    assert not watched.failure


def test_a_share_that_hangs_again_and_again_fails_the_build_and_says_why() -> None:
    watched, after_s = Watched(), 0.0
    for attempt in range(1, MAX_INFRASTRUCTURE_FAILURES + 2):
        begun = NOW + timedelta(seconds=after_s)
        watched.observe(after_s, tuple(a_build_pod(i, attempt, created_at=begun, started_at=begun) for i in (0, 1)))
        after_s += HANG_S
        watched.observe(after_s, tuple(a_build_pod(i, attempt, created_at=begun, started_at=begun) for i in (0, 1)))
        after_s += 60
        watched.observe(after_s, ())
    assert (watched.plan.status["phase"], watched.plan.status["reason"]) == ("Failed", "MaxInfraFailures")
    failed = next(c for c in watched.plan.status["conditions"] if c["type"] == "Failed")
    assert "the last was Hung: pod towns-build-g1-a51-0" in failed["message"]


def test_a_build_pod_that_finds_no_place_is_told_in_reason_and_message() -> None:
    watched = Watched()
    waits: dict[str, Any] = {"waiting_reason": "Unschedulable", "waiting_message": "0/3 nodes have enough memory"}
    placeless = a_build_pod(1, phase="Pending", started_at=None, **waits)
    watched.observe(10, (GROUP[0], placeless), new_at=(5,))
    assert watched.plan.status["reason"] == "Unschedulable"
    reason, message = watched.not_ready
    assert reason == "Unschedulable" and message.startswith(f"pod {placeless.name} waits: Unschedulable: 0/3 nodes")
    watched.observe(20, new_at=(5, 15))
    assert (watched.plan.status["reason"], watched.not_ready[0]) == ("Building", "Building")


def test_a_build_pod_that_does_not_start_for_no_reason_is_named() -> None:
    watched = Watched()
    slow = a_build_pod(1, phase="Pending", started_at=None)
    watched.observe(10, (GROUP[0], slow), new_at=(5,))
    assert f"if that lasts, kubectl describe pod {slow.name} shows what it waits for" in watched.not_ready[1]


def test_a_word_is_new_when_its_record_is_another_than_at_the_look_before(tmp_path: Path) -> None:
    store, keys, records = FolderStore(tmp_path), BuildKeys("team-a", "uid"), Records()

    def reports(after_s: float) -> list[tuple[int, int, float]]:
        look = read_build(store, records, keys, 1, shares=2, now=NOW + timedelta(seconds=after_s))
        return [(word.index, word.record.seq, (word.since - NOW).total_seconds()) for word in look.reports]

    store.put(keys.progress(1, 1), a_record(seq=1).model_dump_json().encode())
    store.put(keys.progress(2, 0), a_record(seq=1).model_dump_json().encode())  # of another generation
    assert reports(10) == [(1, 1, 10)]
    assert reports(500) == [(1, 1, 10)]
    store.put(keys.progress(1, 1), a_record(seq=2).model_dump_json().encode())
    store.put(keys.progress(1, 0), b"no record")
    assert reports(600) == [(1, 2, 600)]
