"""What conditions say is so: of a start that is held up, of corrupt checkpoints, of pods that are deleted, of ends."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lead_operator.decisions.observed import ObservedCheckpoint, ObservedInstance, ObservedPod, ObservedRun
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_protocol.progress_record import ProgressRecord
from lead_protocol.run_records import RestartRecord
from lead_testing.makers import NOW, RUN_UID, SETTINGS, a_failed_pod, a_pod, a_ready_cache, a_training_run

PREFIX = f"runs/team-a/{RUN_UID}/train-s0/"
RUN = a_training_run()
CHECKPOINT = ObservedCheckpoint("m", f"{PREFIX}checkpoints/000000000012/0001-abc/", 12, 1, 1, 10, "")
KEPT = ObservedInstance("train", 0, highest_attempt=1, checkpoint=CHECKPOINT)
CORRUPT = (f"{PREFIX}manifest/000000000024.0.json",)
ENDED = (a_failed_pod(0, 137), a_failed_pod(1, 137))
GROUP = (a_pod(0), a_pod(1))


def play(*looks: tuple[ObservedInstance, tuple[ObservedPod, ...]], last: dict[str, Any] | None = None) -> Plan:
    """Looks at a run again and again, 5 s apart, and returns the last plan; `last`: what else is seen then."""
    plan = Plan(status={})
    for at, (bucket, pods) in enumerate([(ObservedInstance("train", 0), ()), *looks]):
        seen: dict[str, Any] = {"caches": (a_ready_cache(),)} | ((last or {}) if at == len(looks) else {})
        observed = ObservedRun(
            now=NOW + timedelta(seconds=5 * at), pods=pods, service_exists=True, instances=(bucket,),
            previous=plan.status, **seen,
        )  # fmt: skip
        plan = decide_training_run(RUN, observed, SETTINGS)
    return plan


def condition(plan: Plan, kind: str) -> dict[str, Any]:
    return next((c for c in plan.status["conditions"] if c["type"] == kind), {})


def test_a_next_attempt_that_is_held_up_is_not_about_to_start() -> None:
    plan = play((KEPT, GROUP), (KEPT, ENDED), last={"store_error": "StoreUnavailable: no answer"})
    assert plan.status["phase"] == "Recovering"
    assert condition(plan, "Ready")["message"] == "attempt 1 failed; the next one waits: StorageUnavailable"


def test_which_checkpoint_is_used_is_said_as_it_is() -> None:
    some = condition(play((replace(KEPT, quarantined=CORRUPT), GROUP)), "CheckpointsValid")["message"]
    none = condition(play((replace(KEPT, checkpoint=None, quarantined=CORRUPT), GROUP)), "CheckpointsValid")["message"]
    assert "the checkpoint of step 12 is used" in some
    assert "no valid one is left in this stage" in none


NO_WEIGHTS = "spec.stages[train].initFrom runs/team-a/u/one-s0/manifest/: found 1 checkpoint, which is corrupt"


def test_a_run_that_finds_no_valid_checkpoint_does_not_call_its_checkpoints_sound() -> None:
    ended = tuple(replace(pod, phase="Failed", exit_code=66, message=NO_WEIGHTS, finished_at=NOW) for pod in GROUP)
    found = condition(play((KEPT, GROUP), (KEPT, ended)), "CheckpointsValid")
    assert (found["status"], found["reason"]) == ("False", "NoValidCheckpoint")
    assert NO_WEIGHTS in found["message"]
    before = condition(play((KEPT, GROUP)), "CheckpointsValid")
    assert (before["status"], before["message"]) == ("True", "no corrupt checkpoint of this run was found")


@pytest.mark.parametrize(
    "spec",
    [
        {"checkpoint": {"from": "s3://lead/runs/team-a/6a1b/one-s0/"}},
        {"stages": [{"name": "train", "initFrom": {"uri": "s3://lead/runs/team-a/6a1b/one-s0/"}}]},
    ],
)
def test_a_run_that_begins_with_a_checkpoint_of_another_says_who_verifies_that(spec: dict[str, Any]) -> None:
    observed = ObservedRun(now=NOW, caches=(a_ready_cache(),))
    plan = decide_training_run(a_training_run(**spec), observed, SETTINGS)
    assert "a pod verifies the one of another run" in condition(plan, "CheckpointsValid")["message"]


@pytest.mark.parametrize("ends", [True, False])
def test_a_session_cache_is_no_concern_of_a_run_that_has_ended(ends: bool) -> None:
    degraded = ProgressRecord(
        attempt=1, seq=1, phase="Training", epoch=4, epochs=4, step=48, steps=48, cache_degraded=True
    )
    bucket = replace(KEPT, progress=degraded)
    if ends:
        final = replace(bucket, checkpoint=replace(CHECKPOINT, step=48, epoch=4, final=True))
        pods = tuple(a_pod(rank, phase="Succeeded") for rank in (0, 1))
        plan = play((bucket, GROUP), (final, pods))
        assert plan.status["phase"] == "Succeeded"
    else:
        plan = play((bucket, GROUP))
    assert bool(condition(plan, "SessionCacheDegraded")) is not ends


def test_restarts_that_could_not_be_read_at_the_end_are_filled_in_later() -> None:
    done = play((KEPT, GROUP), (KEPT, ENDED)).status
    ended = {**done, "phase": "Succeeded", "conditions": [
        {"type": "Succeeded", "status": "True", "reason": "AllStagesDone", "message": "", "observedGeneration": 1},
    ]}  # fmt: skip
    del ended["restarts"]
    away = ObservedRun(now=NOW, previous=ended, store_error="StoreUnavailable: no answer")
    assert "restarts" not in decide_training_run(RUN, away, SETTINGS).status
    recorded = RestartRecord(program=1, infrastructure=2, voluntary=0, instances=[])
    back = replace(away, store_error="", restart_record=recorded)
    assert decide_training_run(RUN, back, SETTINGS).status["restarts"]["total"] == 3
