"""`parallelism`: how many stage instances train at once, in which order, and that one's end is no other's business."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from lead_operator.decisions.observed import ObservedCheckpoint, ObservedInstance, ObservedPod, ObservedRun
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.names import Condition
from lead_operator.resources.crd_defaults import fill_defaults
from lead_operator.resources.training_run import TrainingRun
from lead_protocol.progress_record import Advisory, ProgressRecord
from lead_testing.makers import NOW, RUN_UID, SETTINGS, a_failed_pod, a_pod, a_ready_cache, a_run_body, a_training_run
from lead_testing.statuses import find_condition

TREE = [
    {"name": "pretrain", "epochs": 2},
    {"name": "tune", "epochs": 2, "initFrom": {"stage": "pretrain"}, "seeds": [0, 1, 2]},
    {"name": "other", "epochs": 2},
]


def a_tree(parallelism: int = 2, **spec: Any) -> TrainingRun:
    return a_training_run(**{"stages": TREE, "parallelism": parallelism, **spec})


def decide(run: TrainingRun, *, after_s: float = 0, previous: dict[str, Any] | None = None, **seen: Any) -> Plan:
    fields: dict[str, Any] = {"caches": (a_ready_cache(),), "service_exists": True} | seen
    fields.setdefault("instances", buckets(run))
    plan = decide_training_run(
        run, ObservedRun(now=NOW + timedelta(seconds=after_s), previous=previous or {}, **fields), SETTINGS
    )
    fill_defaults({**a_run_body(), "status": plan.status})  # the CRD knows every field of the status
    return plan


def buckets(run: TrainingRun, **found: ObservedInstance) -> tuple[ObservedInstance, ...]:
    keys = [(i.stage.name, i.seed) for i in run.instances]
    return tuple(found.get(f"{stage}{seed}", ObservedInstance(stage, seed)) for stage, seed in keys)


def done(stage: str, seed: int = 0) -> ObservedInstance:
    prefix = f"runs/team-a/{RUN_UID}/{stage}-s{seed}/checkpoints/x/"
    final = ObservedCheckpoint("key", prefix, 20, 2, 1, 10, "2026-01-01T12:00:00+00:00")
    return ObservedInstance(stage, seed, checkpoint=final, highest_attempt=1)


def trains(stage: str, seed: int, step: int, seq: int = 1, attempt: int = 1) -> ObservedInstance:
    record = ProgressRecord(
        attempt=attempt, seq=seq, phase="Training", epoch=0, epochs=2, step=step, steps=20, loss=0.5
    )
    return ObservedInstance(stage, seed, progress=record, highest_attempt=attempt)


def group(stage: str, seed: int = 0, **fields: Any) -> tuple[ObservedPod, ...]:
    return tuple(a_pod(rank, stage=stage, seed=seed, **fields) for rank in (0, 1))


def groups_made(plan: Plan) -> set[str]:
    return {o["metadata"]["name"].rsplit("-", 1)[0] for o in plan.creates if o["kind"] == "Pod"}


def test_a_stage_waits_for_its_parent_and_a_free_one_takes_its_place() -> None:
    plan = decide(a_tree())
    assert groups_made(plan) == {"night-drive-pretrain-s0-a1", "night-drive-other-s0-a1"}
    assert plan.claim_attempt
    assert plan.status["pods"]["desired"] == 4


def test_one_after_another_is_the_default() -> None:
    assert groups_made(decide(a_training_run(stages=TREE))) == {"night-drive-pretrain-s0-a1"}


def test_seeds_start_as_soon_as_their_parent_is_done_and_never_more_than_asked_for() -> None:
    run = a_tree(parallelism=3)
    first = decide(run).status
    ended = tuple(replace(p, phase="Succeeded", exit_code=0, finished_at=NOW) for p in group("pretrain"))
    pods = (*ended, *group("other"))
    plan = decide(run, previous=first, pods=pods, instances=buckets(run, pretrain0=done("pretrain")))
    assert groups_made(plan) == {"night-drive-tune-s0-a1", "night-drive-tune-s1-a1"}
    assert not plan.deletes


def test_a_failed_group_is_replaced_while_the_other_goes_on() -> None:
    run = a_tree()
    first = decide(run).status
    both = (*group("pretrain"), *group("other"))
    running = decide(run, previous=first, pods=both).status
    failed = (a_failed_pod(0, stage="other"), a_failed_pod(1, stage="other"))
    plan = decide(run, after_s=5, previous=running, pods=(*group("pretrain"), *failed))
    assert groups_made(plan) == {"night-drive-other-s0-a2"}
    assert not {d.name for d in plan.deletes} & {p.name for p in group("pretrain")}
    entries = {e["name"]: e for e in plan.status["stages"] if e["seed"] == 0}
    assert (entries["pretrain"]["attempt"], entries["other"]["attempt"]) == (1, 2)
    assert (entries["other"]["restartState"]["failedAttempt"], entries["other"]["restartState"]["endsAtStep"]) == (1, 1)
    assert "failedAttempt" not in entries["pretrain"]["restartState"]
    assert plan.status["restarts"]["program"] == 1


def test_each_group_is_watched_for_a_hang_of_its_own() -> None:
    run = a_tree(failurePolicy={"hangTimeoutSeconds": 100})
    status = decide(run).status
    pods = (*group("pretrain"), *group("other"))
    for number in range(1, 5):  # pretrain advances, other reports the same step again and again
        seen = buckets(run, pretrain0=trains("pretrain", 0, number, number), other0=trains("other", 0, 3, number))
        plan = decide(run, after_s=40 * number, previous=status, pods=pods, instances=seen)
        status = plan.status
    assert status["lastFailure"] | {"time": ""} == status["lastFailure"] | {
        "time": "", "stage": "other", "reason": "Hung", "attempt": 1,
    }  # fmt: skip
    assert {d.name for d in plan.deletes} == {p.name for p in group("other")}


def test_the_columns_tell_of_the_first_and_stages_of_all() -> None:
    run = a_tree()
    pods = (*group("pretrain"), *group("other"))
    seen = buckets(run, pretrain0=trains("pretrain", 0, 7), other0=trains("other", 0, 11))
    status = decide(run, previous=decide(run).status, pods=pods, instances=seen).status
    display = status["display"]
    assert (status["phase"], display["stage"], display["step"].split("/")[0]) == ("Running", "pretrain", "7")
    entries = {e["name"]: e["progress"]["step"] for e in status["stages"] if e["seed"] == 0 and e["attempt"]}
    assert entries == {"pretrain": 7, "other": 11}
    assert decide(run, previous=status, pods=pods, instances=seen).status == status


def test_suspension_stops_all_groups_and_resumption_brings_all_back_as_new_attempts() -> None:
    run = a_tree()
    pods = (*group("pretrain"), *group("other"))
    running = decide(run, previous=decide(run).status, pods=pods).status
    asked = decide(a_tree(suspend=True), previous=running, pods=pods)
    assert {d.name for d in asked.deletes} == {p.name for p in pods}
    stopped = decide(a_tree(suspend=True), previous=asked.status).status
    assert stopped["phase"] == "Suspended"
    resumed = decide(run, after_s=60, previous=stopped)
    assert groups_made(resumed) == {"night-drive-pretrain-s0-a2", "night-drive-other-s0-a2"}
    assert resumed.status["restarts"]["total"] == 0


def test_a_mistake_in_one_ends_the_run_and_stops_the_others() -> None:
    run = a_tree()
    running = decide(run, previous=decide(run).status, pods=(*group("pretrain"), *group("other"))).status
    pods = (*group("pretrain"), a_failed_pod(0, 78, stage="other"), a_pod(1, stage="other"))
    plan = decide(run, previous=running, pods=pods)
    assert plan.status["phase"] == "Failed"
    assert {d.name for d in plan.deletes} == {p.name for p in pods if not p.terminal}
    assert not plan.creates


def test_a_stray_pod_of_a_stage_that_is_done_is_removed_whoever_trains() -> None:
    run = a_tree()
    seen = buckets(run, pretrain0=done("pretrain"))
    ended = tuple(replace(p, phase="Succeeded", exit_code=0, finished_at=NOW) for p in group("pretrain"))
    status = decide(run, previous=decide(run).status, pods=(*ended, *group("other")), instances=seen).status
    stray = a_pod(0, stage="pretrain", attempt=2)
    plan = decide(run, previous=status, pods=(stray, *group("other"), *group("tune")), instances=seen)
    assert [d.name for d in plan.deletes] == [stray.name]


def test_the_advice_of_every_instance_that_trains_is_told_with_its_name() -> None:
    run = a_tree(stages=[{"name": "tune", "epochs": 2, "seeds": [0, 1]}])
    flat = Advisory(rule="plateau", epoch=1, message="the loss has not fallen")
    first, second = trains("tune", 0, 5), trains("tune", 1, 6)
    assert second.progress is not None
    warned = replace(second, progress=second.progress.model_copy(update={"advisories": [flat]}))
    pods = group("tune", 0) + group("tune", 1)
    quiet = decide(run, pods=pods, instances=buckets(run, tune0=first, tune1=second))
    told = decide(run, previous=quiet.status, pods=pods, instances=buckets(run, tune0=first, tune1=warned))
    condition = find_condition(told.status, Condition.ADVISORY)
    assert condition is not None and condition["message"] == "tune s1, plateau, epoch 1: the loss has not fallen"
    assert [note.message for note in told.events if note.reason == "Advisory"] == [condition["message"]]
