"""A run that had a checkpoint never begins at step 0 again in silence, whoever has removed the manifests."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lead_operator.decisions.observed import ObservedCheckpoint, ObservedInstance, ObservedPod, ObservedRun
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_protocol.run_records import RestartRecord, parse_restart_record
from lead_testing.makers import NOW, RUN_UID, SETTINGS, a_failed_pod, a_pod, a_ready_cache, a_training_run

PREFIX = f"runs/team-a/{RUN_UID}/train-s0/"
KEPT = ObservedInstance(
    "train", 0, highest_attempt=1,
    checkpoint=ObservedCheckpoint("m", f"{PREFIX}checkpoints/000000000012/0001-abc/", 12, 1, 1, 10, ""),
)  # fmt: skip
GONE = ObservedInstance("train", 0, highest_attempt=1)
NOTHING = ObservedInstance("train", 0)  # the whole folder was removed
ENDED = (a_failed_pod(0, 137), a_failed_pod(1, 137))


class Life:
    def __init__(self, **spec: Any) -> None:
        self.run, self.plan, self.restart_record = a_training_run(**spec), Plan(status={}), None
        self.observe(0, bucket=NOTHING)
        self.observe(5, a_pod(0), a_pod(1), bucket=KEPT)

    def observe(self, after_s: float, *pods: ObservedPod, bucket: ObservedInstance, **seen: Any) -> dict[str, Any]:
        observed = ObservedRun(
            now=NOW + timedelta(seconds=after_s), pods=pods, service_exists=True, caches=(a_ready_cache(),),
            instances=(bucket,), **{"previous": self.plan.status, **seen},
        )  # fmt: skip
        self.plan = decide_training_run(self.run, observed, SETTINGS)
        return self.plan.status

    def condition(self, kind: str) -> dict[str, Any]:
        return next(c for c in self.plan.status["conditions"] if c["type"] == kind)


@pytest.mark.parametrize("bucket", [GONE, NOTHING], ids=["manifests", "folder"])
def test_it_is_told_while_the_run_trains_and_the_next_attempt_fails_the_run(bucket: ObservedInstance) -> None:
    life = Life()
    status = life.observe(10, a_pod(0), a_pod(1), bucket=bucket)
    assert not life.plan.deletes, "what runs goes on"
    found = life.condition("Checkpointed")
    assert (found["status"], found["reason"]) == ("False", "CheckpointMissing")
    assert "CheckpointMissing" in [note.reason for note in life.plan.events]
    checkpoint = status["stages"][0]["checkpoint"]
    assert (checkpoint["step"], checkpoint["uri"][-13:]) == (12, "012/0001-abc/")
    status = life.observe(20, *ENDED, bucket=bucket)
    assert (status["phase"], status["reason"]) == ("Failed", "NoValidCheckpoint")
    assert "the checkpoint of step 12 was committed" in life.condition("Failed")["message"]
    assert not life.plan.creates


def test_a_newer_checkpoint_makes_up_for_it() -> None:
    life = Life()
    life.observe(10, a_pod(0), a_pod(1), bucket=GONE)
    assert KEPT.checkpoint is not None
    newer = replace(KEPT, checkpoint=replace(KEPT.checkpoint, step=24, epoch=2))
    status = life.observe(20, a_pod(0), a_pod(1), bucket=newer)
    assert (status["stages"][0]["checkpoint"]["step"], life.condition("Checkpointed")["status"]) == (24, "True")
    assert "CheckpointSaved" not in [note.reason for note in life.plan.events], "it is not the first of its stage"
    assert life.observe(30, *ENDED, bucket=newer)["phase"] == "Recovering"


def test_the_restart_records_know_it_after_an_erased_status() -> None:
    life = Life()
    life.observe(10, *ENDED, bucket=KEPT)
    records = [parse_restart_record(record.data) for record in life.plan.records]
    (recorded,) = [recorded for recorded in records if isinstance(recorded, RestartRecord)]
    status = life.observe(20, bucket=replace(GONE, highest_attempt=1), previous={}, restart_record=recorded)
    assert (status["phase"], status["reason"]) == ("Failed", "NoValidCheckpoint")


@pytest.mark.parametrize(
    ("spec", "bucket"),
    [
        ({}, replace(GONE, quarantined=(f"{PREFIX}manifest/000000000012.0.json",))),  # the pods tell what is wrong
        ({"checkpoint": {"resume": "Never"}}, GONE),
    ],
)
def test_what_was_set_aside_is_not_lost(spec: dict[str, Any], bucket: ObservedInstance) -> None:
    life = Life(**spec)
    status = life.observe(20, *ENDED, bucket=bucket)
    assert status["phase"] == "Recovering" and life.plan.claim_attempt


def test_a_bucket_that_cannot_be_read_has_lost_nothing() -> None:
    life = Life()
    life.observe(10, a_pod(0), a_pod(1), bucket=GONE, store_error="StoreUnavailable: no answer")
    status = life.observe(20, *ENDED, bucket=GONE, store_error="StoreUnavailable: no answer")
    assert status["phase"] == "Recovering" and not life.plan.creates


def test_a_run_without_a_checkpoint_begins_again() -> None:
    life = Life()
    life.plan = Plan(status={})
    life.observe(0, bucket=NOTHING)
    life.observe(5, a_pod(0), a_pod(1), bucket=GONE)
    assert life.observe(10, *ENDED, bucket=GONE)["phase"] == "Recovering"
    assert life.plan.claim_attempt
