"""Tables of `decide_training_run`: what is seen, and what follows."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lead_operator.decisions.observed import (
    ObservedCache,
    ObservedCheckpoint,
    ObservedInstance,
    ObservedPod,
    ObservedRun,
)
from lead_operator.decisions.plan import Plan, PodToDelete
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.kube.observe import observe_cache
from lead_operator.resources.crd_defaults import fill_defaults
from lead_operator.resources.training_run import TrainingRun
from lead_protocol.progress_record import ProgressRecord
from lead_testing.makers import (
    DIGEST,
    NOW,
    RUN_UID,
    SETTINGS,
    a_failed_pod,
    a_pod,
    a_ready_cache,
    a_run_body,
    a_training_run,
)

PREFIX = f"runs/team-a/{RUN_UID}/train-s0/"


def decide(run: TrainingRun, *, after_s: float = 0, previous: dict[str, Any] | None = None, **fields: Any) -> Plan:
    """Decides once, with a ready cache and a service unless told otherwise."""
    seen: dict[str, Any] = {"caches": (a_ready_cache(),), "service_exists": True, "instances": (bucket(),)} | fields
    observed = ObservedRun(now=NOW + timedelta(seconds=after_s), previous=previous or {}, **seen)
    plan = decide_training_run(run, observed, SETTINGS)
    fill_defaults({**a_run_body(), "status": plan.status})  # the CRD knows every field of the status
    return plan


def bucket(epoch: int = 0, step: int = 0, attempts: int = 0, **fields: Any) -> ObservedInstance:
    checkpoint = ObservedCheckpoint("key", f"{PREFIX}checkpoints/x/", step, epoch, 1, 10, "2026-01-01T12:00:00+00:00")
    return ObservedInstance("train", 0, checkpoint=checkpoint if step else None, highest_attempt=attempts, **fields)


def record(**fields: Any) -> ProgressRecord:
    values: dict[str, Any] = {
        "attempt": 1,
        "seq": 1,
        "phase": "Training",
        "epoch": 1,
        "epochs": 4,
        "step": 12,
        "steps": 48,
    } | fields
    return ProgressRecord(**values)


def started(run: TrainingRun) -> dict[str, Any]:
    """Returns the status after both pods of attempt 1 were seen running."""
    first = decide(run).status
    return decide(run, previous=first, pods=(a_pod(0), a_pod(1))).status


def condition(plan: Plan, kind: str) -> dict[str, Any]:
    return next((c for c in plan.status["conditions"] if c["type"] == kind), {})


def made(plan: Plan) -> list[str]:
    return [o["metadata"]["name"] for o in plan.creates]


def test_a_mapping_over_a_word_is_refused_before_a_run_begins_and_not_later() -> None:
    after = {"name": "after", "epochs": 1, "config": {"compat": {"lagging_lr": True}}}
    run = a_training_run(stages=[{"name": "train", "epochs": 4}, after], config={"compat": "lead"})
    plan = decide(run)
    assert (plan.status["phase"], plan.status["reason"], plan.creates) == ("Failed", "BadSpec", ())
    told = condition(plan, "Failed")["message"]
    assert "config.compat is {'lagging_lr': True} in stage 'after' and 'lead' in spec.config" in told
    begun = started(replace(run, config={}))
    assert decide(run, previous=begun, pods=(a_pod(0), a_pod(1))).status["phase"] != "Failed"


def test_a_new_run_claims_its_first_attempt_and_asks_for_the_whole_group() -> None:
    plan = decide(a_training_run(), service_exists=False)
    assert plan.claim_attempt
    assert made(plan) == ["night-drive-ranks", "night-drive-train-s0-a1-0", "night-drive-train-s0-a1-1"]
    assert plan.status["phase"] == "Starting"
    assert plan.status["stages"][0]["attempt"] == 1
    assert plan.status["datasets"] == [{"name": "towns", "digest": DIGEST}]


def test_a_run_that_waited_for_its_cache_tells_when_it_is_ready_and_no_other() -> None:
    at_once = decide(a_training_run())
    assert [note.reason for note in at_once.events] == ["PodsCreated"]
    waits = decide(a_training_run(), caches=(a_ready_cache(ready=False),))
    begins = decide(a_training_run(), previous=waits.status, after_s=9)
    assert [note.reason for note in (*waits.events, *begins.events)] == ["CacheBuilding", "CacheReady", "PodsCreated"]


def test_after_a_crash_behind_the_claim_the_pods_are_made_without_a_second_claim() -> None:
    run = a_training_run()
    first = decide(run).status
    plan = decide(run, after_s=3, previous=first, pods=(a_pod(1),))
    assert not plan.claim_attempt
    assert made(plan) == ["night-drive-train-s0-a1-0"]


@pytest.mark.parametrize(
    ("cache", "phase", "reason"),
    [
        (ObservedCache("towns", found=False), "Pending", "CacheNotFound"),
        (a_ready_cache(ready=False), "Caching", "CacheBuilding"),
        (a_ready_cache(ready=False, failed=True, message="no routes"), "Pending", "CacheFailed"),
        (a_ready_cache(recipe="world"), "Failed", "RecipeMismatch"),
        (a_ready_cache(storage_profile="other"), "Failed", "ProfileMismatch"),
    ],
)
def test_a_run_without_a_usable_cache_makes_no_pods_and_says_why(cache: ObservedCache, phase: str, reason: str) -> None:
    plan = decide(a_training_run(), caches=(cache,))
    assert (plan.status["phase"], condition(plan, "DatasetReady")["reason"]) == (phase, reason)
    assert not plan.creates and not plan.claim_attempt


def test_a_cache_or_profile_that_is_not_there_is_named_with_the_one_most_like_it() -> None:
    cache = observe_cache("town", None, ["towns", "rain"])
    said = condition(
        decide(a_training_run(datasets=[{"cacheRef": {"name": "town"}}]), caches=(cache,)), "DatasetReady"
    )["message"]
    assert "DatasetCache team-a/town does not exist; did you mean towns? create it" in said
    assert observe_cache("snow", None, ["towns"]).near == ""
    said = condition(decide(a_training_run(storageProfile="defualt")), "Accepted")["message"]
    assert "spec.storageProfile is 'defualt', which is not defined; did you mean default? known are: default" in said


def test_the_digest_a_run_began_with_is_kept_when_the_cache_is_built_anew() -> None:
    run = a_training_run()
    status = decide(run).status
    plan = decide(run, previous=status, caches=(a_ready_cache(ready=False),))
    assert json.loads(plan.creates[0]["metadata"]["annotations"]["lead.dev/job"])["datasets"][0]["digest"] == DIGEST


def test_the_columns_tell_what_rank_0_reported() -> None:
    run = a_training_run()
    report = record(loss=0.83123, samples_per_s=412.3, eta_s=4321, cache_hits=93, cache_misses=7)
    held = replace(bucket(epoch=1, step=12, attempts=1), progress=report)
    plan = decide(run, previous=started(run), pods=(a_pod(0), a_pod(1)), instances=(held,))
    status = plan.status
    assert status["phase"] == "Running"
    assert status["display"]["stage"] == "train"
    assert status["display"]["epoch"] == "1/4"
    assert status["display"]["step"] == "12/48"
    assert status["stages"][0]["progress"]["loss"] == "0.8312"
    assert status["display"]["rate"] == "412/s"
    assert status["display"]["eta"] == "1h12m"
    assert status["stages"][0]["checkpoint"]["savedAt"] == "2026-01-01T12:00:00Z"
    assert status["stages"][0]["checkpoint"]["uri"] == f"s3://lead/{PREFIX}checkpoints/x/"
    assert status["display"]["cacheHits"] == "93%"
    assert (status["display"]["pods"], status["display"]["nodes"]) == ("2/2", "node-0,node-1")
    assert condition(plan, "Progressing")["status"] == condition(plan, "Ready")["status"] == "True"


def degraded(run: TrainingRun, **told: Any) -> str:
    """Returns what the condition on the session cache says of a report, with two running pods."""
    held = replace(bucket(), progress=record(**told))
    plan = decide(run, previous=started(run), pods=(a_pod(0), a_pod(1)), instances=(held,))
    return str(condition(plan, "SessionCacheDegraded").get("message", "absent"))


def test_a_degraded_session_cache_is_told_with_the_pod_and_the_node_it_is_on() -> None:
    run, eight = a_training_run(), replace(a_training_run(), procs_per_node=8)
    rest = "is full, broken or was emptied; training reads from the store meanwhile and tries again"
    assert degraded(run) == "absent"
    assert degraded(run, cache_degraded=True) == f"the session cache {rest}"  # a trainer that names no ranks
    pods = ["pod night-drive-train-s0-a1-0 on node node-0", "pod night-drive-train-s0-a1-1 on node node-1"]
    one = f"the session cache in {pods[1]} (rank 1) {rest}"
    assert degraded(run, cache_degraded=True, cache_degraded_ranks=[1]) == one
    both = f"the session cache in {pods[0]} (rank 7), {pods[1]} (ranks 9, 15) {rest}"
    assert degraded(eight, cache_degraded=True, cache_degraded_ranks=[15, 9, 7, 9]) == both
    assert degraded(run, cache_degraded=True, cache_degraded_ranks=[10**15]) == f"the session cache {rest}"


@pytest.mark.parametrize("forged", [{"attempt": 2}, {"epoch": 5}, {"step": 49}])
def test_a_report_that_cannot_be_true_is_ignored_and_named(forged: dict[str, int]) -> None:
    run = a_training_run()
    held = replace(bucket(), progress=record(**forged))
    plan = decide(run, previous=started(run), pods=(a_pod(0), a_pod(1)), instances=(held,))
    assert plan.status["stages"][0]["progress"]["epoch"] == 0
    assert condition(plan, "Progressing")["reason"] == "ImplausibleReport"


RESTARTED = [
    (a_failed_pod(1, 1), "program", "ProgramError"),
    (a_failed_pod(1, 137, reason="OOMKilled"), "program", "OOMKilled"),
    (a_failed_pod(1, 137, disruption="PreemptionByScheduler"), "infrastructure", "PreemptionByScheduler"),
    (a_failed_pod(1, None, reason="Evicted"), "infrastructure", "Evicted"),
    (a_failed_pod(1, 75, disruption="EvictionByEvictionAPI"), "voluntary", "EvictionByEvictionAPI"),
    (a_failed_pod(1, 75, reason="Terminated"), "voluntary", "Terminated"),
    (a_failed_pod(1, 143, deleting=True), "infrastructure", "PodDeleted"),
    (a_failed_pod(1, 80), "infrastructure", "StoreUnavailable"),
    (a_failed_pod(1, 75), "voluntary", "StoppedUnasked"),
    (a_failed_pod(1, 82), "voluntary", "StepTooLarge"),
]


@pytest.mark.parametrize(("pod", "budget", "reason"), RESTARTED)
def test_a_failed_rank_restarts_the_whole_group_from_its_own_budget(pod: ObservedPod, budget: str, reason: str) -> None:
    run = a_training_run()
    ended = decide(run, after_s=30, previous=started(run), pods=(a_pod(0), pod))
    assert ended.deletes == (PodToDelete("night-drive-train-s0-a1-0", "uid-of-night-drive-train-s0-a1-0"),)
    assert not ended.creates
    assert (ended.status["phase"], ended.status["lastFailure"]["reason"]) == ("Recovering", reason)
    again = decide(run, after_s=31, previous=ended.status, pods=(pod,))
    assert again.claim_attempt
    assert made(again) == ["night-drive-train-s0-a2-0", "night-drive-train-s0-a2-1"]
    assert {k: again.status["restarts"][k] for k in ("total", budget)} == {"total": 1, budget: 1}


def test_no_pod_of_the_next_attempt_is_made_while_one_of_the_last_may_write() -> None:
    run = a_training_run()
    ended = decide(run, previous=started(run), pods=(a_pod(0), a_failed_pod(1)))
    waiting = decide(run, after_s=300, previous=ended.status, pods=(a_pod(0, deleting=True), a_failed_pod(1)))
    assert not waiting.claim_attempt and not waiting.creates and not waiting.deletes


def test_the_cause_is_found_behind_ranks_that_only_lost_their_peer() -> None:
    run = a_training_run()
    waiting = decide(run, previous=started(run), pods=(a_failed_pod(0, 81), a_pod(1)))
    assert "lastFailure" not in waiting.status
    plan = decide(run, after_s=2, previous=waiting.status, pods=(a_failed_pod(0, 81), a_failed_pod(1, 1)))
    assert plan.status["lastFailure"]["pod"] == "night-drive-train-s0-a1-1"


def test_a_users_mistake_ends_the_run_at_once_with_the_pods_own_words() -> None:
    run = a_training_run()
    words = "config key batchsize is unknown; did you mean batch_size?"
    message = record(phase="Failed", message=words, step=0, epoch=0).model_dump_json()
    plan = decide(run, previous=started(run), pods=(a_failed_pod(0, 64, message=message), a_pod(1)))
    assert (plan.status["phase"], plan.status["reason"]) == ("Failed", "BadConfig")
    assert condition(plan, "Failed")["message"].startswith(f"{words}; ")
    assert condition(plan, "Accepted")["status"] == "False"
    assert [d.name for d in plan.deletes] == ["night-drive-train-s0-a1-1"]


def test_a_lost_node_is_forced_and_replaced_when_its_time_is_over() -> None:
    run = a_training_run()
    status = started(run)
    lost = a_pod(1, node_ready=False, node_not_ready_since=NOW)
    early = decide(run, after_s=59, previous=status, pods=(a_pod(0), lost))
    assert not early.deletes and early.requeue_after_s == 1
    late = decide(run, after_s=60, previous=status, pods=(a_pod(0), lost))
    assert late.status["lastFailure"]["reason"] == "NodeLost"
    assert {d.name: d.grace_period_s for d in late.deletes} == {
        "night-drive-train-s0-a1-0": None,
        "night-drive-train-s0-a1-1": 0,
    }


def test_a_pod_that_disappeared_counts_as_a_disturbance() -> None:
    run = a_training_run()
    plan = decide(run, previous=started(run), pods=(a_pod(0),))
    assert plan.status["lastFailure"]["reason"] == "PodGone"
    assert plan.status["restarts"]["infrastructure"] == 1


def fail_again_and_again(run: TrainingRun, instance: ObservedInstance) -> list[Plan]:
    plans, status, after_s = [], started(run), 0
    for attempt in range(1, 20):
        after_s += 100
        pods = (a_failed_pod(0, 1, attempt=attempt), a_failed_pod(1, 1, attempt=attempt))
        plans.append(decide(run, after_s=after_s, previous=status, pods=pods, instances=(instance,)))
        if plans[-1].status["phase"] == "Failed":
            break
        after_s += 100
        status = decide(run, after_s=after_s, previous=plans[-1].status, pods=pods, instances=(instance,)).status
    return plans


def test_a_crash_loop_before_the_first_checkpoint_stops_at_max_restarts() -> None:
    plans = fail_again_and_again(a_training_run(failurePolicy={"maxRestarts": 3}), bucket())
    assert len(plans) == 4
    assert plans[-1].status["reason"] == "MaxRestarts"


def test_a_crash_loop_at_one_checkpoint_stops_at_no_progress_limit() -> None:
    policy = {"maxRestarts": 10, "noProgressLimit": 3}
    plans = fail_again_and_again(a_training_run(failurePolicy=policy), bucket(epoch=1, step=12))
    assert len(plans) == 3
    assert plans[-1].status["reason"] == "NoProgress"


def test_a_run_that_does_not_advance_is_restarted_and_an_advancing_one_is_not() -> None:
    run = a_training_run(failurePolicy={"hangTimeoutSeconds": 100})
    pods = (a_pod(0), a_pod(1))
    held = replace(bucket(), progress=record())
    status = decide(run, previous=started(run), pods=pods, instances=(held,)).status
    later = replace(bucket(), progress=record(seq=9, step=13))
    assert decide(run, after_s=100, previous=status, pods=pods, instances=(later,)).status["phase"] == "Running"
    stuck = replace(bucket(), progress=record(seq=9))
    plan = decide(run, after_s=100, previous=status, pods=pods, instances=(stuck,))
    assert plan.status["lastFailure"]["reason"] == "Hung"
    assert len(plan.deletes) == 2


def test_suspend_stops_the_pods_and_resume_starts_an_attempt_that_is_not_counted() -> None:
    run = a_training_run()
    asleep = replace(run, suspend=True)
    stopping = decide(asleep, previous=started(run), pods=(a_pod(0), a_pod(1)))
    assert stopping.status["phase"] == "Checkpointing"
    assert [d.grace_period_s for d in stopping.deletes] == [None, None]
    stopped = decide(asleep, after_s=5, previous=stopping.status)
    assert stopped.status["phase"] == "Suspended"
    resumed = decide(run, after_s=900, previous=stopped.status)
    assert resumed.claim_attempt
    assert resumed.status["stages"][0]["attempt"] == 2
    assert resumed.status["restarts"]["total"] == 0
    assert resumed.status["startTime"] == "2026-01-01T12:15:00Z"


def test_the_next_attempt_is_above_status_pods_and_fencing_objects() -> None:
    plan = decide(a_training_run(), instances=(bucket(attempts=7),))
    assert plan.status["stages"][0]["attempt"] == 8


def test_a_store_outage_destroys_nothing_and_starts_nothing() -> None:
    run = a_training_run()
    status = started(run)
    down: dict[str, Any] = {"store_error": "StoreUnavailable: no answer", "instances": ()}
    going_on = decide(run, after_s=5000, previous=status, pods=(a_pod(0), a_pod(1)), **down)
    assert not going_on.deletes and not going_on.creates
    assert condition(going_on, "StorageAvailable")["status"] == "False"
    failed = decide(run, previous=status, pods=(a_failed_pod(0), a_failed_pod(1)), **down)
    assert not failed.claim_attempt


def test_a_stage_is_done_when_its_final_checkpoint_is_committed_and_nothing_runs() -> None:
    run = a_training_run()
    done = (a_pod(0, phase="Succeeded"), a_pod(1, phase="Succeeded"))
    early = decide(run, after_s=1, previous=started(run), pods=done)
    assert (early.status["phase"], early.status["reason"]) == ("Running", "Finishing")
    plan = decide(run, after_s=2, previous=early.status, pods=done, instances=(bucket(epoch=4, step=48),))
    assert plan.status["phase"] == "Succeeded"
    assert plan.status["display"]["epoch"] == "4/4"
    late = decide(run, after_s=90, previous=early.status, pods=done)
    assert late.status["lastFailure"]["reason"] == "FinalCheckpointMissing"


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("attempt", [1, 2])
def test_a_run_whose_last_epoch_is_done_does_not_go_back_while_its_pods_end(attempt: int, committed: bool) -> None:
    """A pod whose container has ended is not ready, and its phase is Running for a while."""
    run = a_training_run()
    before = started(run)
    if attempt == 2:
        failed = decide(run, after_s=60, previous=before, pods=(a_failed_pod(0), a_failed_pod(1)))
        before = decide(run, after_s=600, previous=failed.status).status
        assert (before["phase"], before["stages"][0]["attempt"]) == ("Recovering", 2)
    report = record(attempt=attempt, phase="Checkpointing", epoch=4, step=48)
    told = replace(bucket(epoch=4, step=48) if committed else bucket(), progress=report)
    at_work = (a_pod(0, attempt=attempt), a_pod(1, attempt=attempt))
    seen = decide(run, after_s=601, previous=before, pods=at_work, instances=(told,))
    assert (seen.status["phase"], seen.status["display"]["epoch"]) == ("Running", "4/4")
    ending = a_pod(0, attempt=attempt, ready=False)
    others = (a_pod(1, attempt=attempt, ready=False), a_pod(1, attempt=attempt, phase="Succeeded", ready=False))
    for other in others:
        plan = decide(run, after_s=602, previous=seen.status, pods=(ending, other), instances=(told,))
        assert (plan.status["phase"], plan.status["reason"]) == ("Running", "Finishing")
    ended = tuple(a_pod(rank, attempt=attempt, phase="Succeeded", ready=False) for rank in (0, 1))
    over = decide(run, after_s=603, previous=seen.status, pods=ended, instances=(bucket(epoch=4, step=48),))
    assert over.status["phase"] == "Succeeded"


def test_the_pods_of_a_next_stage_start() -> None:
    stages = [{"name": "train", "epochs": 4}, {"name": "tune", "epochs": 1, "initFrom": {"stage": "train"}}]
    instances = (bucket(epoch=4, step=48, attempts=1), ObservedInstance("tune", 0))
    run = a_training_run(stages=stages)
    begun = decide(run, instances=instances).status
    pods = (a_pod(0, stage="tune", phase="Pending", ready=False), a_pod(1, stage="tune", ready=False))
    status = decide(run, after_s=9, previous=begun, pods=pods, instances=instances).status
    assert (status["phase"], status["display"]["stage"], status["display"]["epoch"]) == ("Starting", "tune", "0/1")


def test_a_stage_that_stopped_early_is_done_and_its_columns_say_how_far_it_came() -> None:
    run = a_training_run()
    done = (a_pod(0, phase="Succeeded"), a_pod(1, phase="Succeeded"))
    held = replace(bucket(epoch=3, step=36), progress=record(phase="Done", epoch=3, step=36, eta_s=0.0))
    assert held.checkpoint is not None
    unmarked = decide(run, after_s=90, previous=started(run), pods=done, instances=(held,))
    assert unmarked.status["lastFailure"]["reason"] == "FinalCheckpointMissing"
    marked = replace(held, checkpoint=replace(held.checkpoint, final=True))
    plan = decide(run, after_s=2, previous=started(run), pods=done, instances=(marked,))
    again = decide(run, after_s=9, previous=plan.status, instances=(), store_error="StoreUnavailable: no answer")
    for status in (plan.status, again.status):  # the second cannot read the bucket
        assert (status["phase"], status["stages"][0]["progress"]["epoch"]) == ("Succeeded", 3)
        assert (status["display"]["epoch"], status["stages"][0]["progress"]["percent"]) == ("3/4", 100)
        assert "eta" not in status["display"] and "etaSeconds" not in status["stages"][0]["progress"]
    assert "stopped early, 3 of 4 epochs" in condition(plan, "Succeeded")["message"]


def test_the_second_stage_starts_from_the_first_and_knows_its_own_config() -> None:
    stages = [
        {"name": "train", "epochs": 4},
        {"name": "tune", "epochs": 1, "initFrom": {"stage": "train"}, "config": {"planner": True}},
    ]
    run = a_training_run(stages=stages, config={"batch_size": 4})
    instances = (bucket(epoch=4, step=48, attempts=1), ObservedInstance("tune", 0))
    plan = decide(run, instances=instances)
    job = json.loads(plan.creates[0]["metadata"]["annotations"]["lead.dev/job"])
    assert made(plan)[0] == "night-drive-tune-s0-a1-0"
    assert job["init_from"] == {"manifests_prefix": f"{PREFIX}manifest/", "checkpoint_prefix": ""}
    assert job["config"] == {"batch_size": 4, "planner": True}
    assert [s["phase"] for s in plan.status["stages"]] == ["Succeeded", "Starting"]


def test_mean_and_deviation_over_seeds_are_shown() -> None:
    run = a_training_run(stages=[{"name": "train", "epochs": 1, "seeds": [0, 1]}])
    found = [
        replace(
            bucket(epoch=1, step=12, attempts=1), seed=seed, progress=record(epochs=1, best_metric=best, phase="Done")
        )
        for seed, best in ((0, 0.25), (1, 0.75))
    ]
    plan = decide(run, instances=tuple(found))
    assert plan.status["phase"] == "Succeeded"
    assert plan.status["seedStatistics"] == [{"stage": "train", "seeds": 2, "mean": "0.5", "std": "0.3536"}]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [({"activeDeadlineSeconds": 60}, "DeadlineExceeded"), ({"pendingDeadlineSeconds": 60}, "PendingDeadlineExceeded")],
)
def test_deadlines_end_the_run_and_give_back_what_it_holds(spec: dict[str, int], reason: str) -> None:
    run = a_training_run(**spec)
    pods = (a_pod(0), a_pod(1, phase="Pending", waiting_reason="Unschedulable", waiting_message="0/3 nodes"))
    status = decide(run, previous=decide(run).status, pods=pods).status
    early = decide(run, after_s=50, previous=status, pods=pods)
    assert early.requeue_after_s == 10 and not early.deletes
    plan = decide(run, after_s=60, previous=status, pods=pods)
    assert (plan.status["phase"], plan.status["reason"], len(plan.deletes)) == ("Failed", reason, 2)


def test_why_a_pod_waits_is_told_with_what_to_do() -> None:
    run = a_training_run()
    pod = a_pod(1, phase="Pending", waiting_reason="ImagePullBackOff", waiting_message="not found")
    ready = condition(decide(run, previous=decide(run).status, pods=(a_pod(0), pod)), "Ready")
    assert ready["reason"] == "ImagePullBackOff"
    assert "check the trainer image" in ready["message"]


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("exceeded quota: small, requested: pods=1", "raise the ResourceQuota"),
        ("failed quota: small: must specify limits.cpu", "set the requests and limits"),
        ("maximum memory usage per Container is 1Gi, but limit is 3Gi", "raise the LimitRange"),
        ('violates PodSecurity "restricted:latest": unrestricted capabilities', "pod-security.kubernetes.io/enforce"),
        ('error looking up service account team-a/lead-run: serviceaccount "lead-run" not found', "install the chart"),
        ("no PriorityClass with name urgent was found", "scheduling.priorityClassName"),
        ('admission webhook "policy.example" denied the request: no', "whoever runs that webhook"),
        ("something new", "ask the administrator"),
    ],
)
def test_refused_pods_are_told_with_a_remedy_and_cost_no_restart(said: str, remedy: str) -> None:
    run = a_training_run(pendingDeadlineSeconds=600)
    plan = decide(
        run, after_s=100, previous=decide(run).status, pods=(a_pod(0),), apply_error=f"Pod x: forbidden: {said}"
    )
    ready = condition(plan, "Ready")
    assert (plan.status["phase"], plan.status["reason"], ready["reason"]) == (
        "Starting",
        "ObjectsRefused",
        "ObjectsRefused",
    )
    assert said in ready["message"] and remedy in ready["message"]
    assert made(plan) == ["night-drive-train-s0-a1-1"] and not plan.claim_attempt
    assert plan.status["restarts"]["total"] == 0
    late = decide(run, after_s=600, previous=plan.status, pods=(a_pod(0),), apply_error=f"Pod x: forbidden: {said}")
    assert said in condition(late, "Failed")["message"]


LIMIT = 'spec.containers[0].resources.requests: Invalid value: "4": must be less than or equal to cpu limit of 2'
NOBODYS = "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources"
KEY = 'metadata.labels: Invalid value: "a key": name part must consist of alphanumeric characters'


def refused(run: TrainingRun, said: str) -> Plan:
    name = "night-drive-train-s0-a1-0"
    return decide(run, previous=decide(run).status, apply_error=f'Pod {name}: Pod "{name}" is invalid: {said}')


@pytest.mark.parametrize(
    ("spec", "said", "told"),
    [
        ({"resources": {"requests": {"cpu": "4"}, "limits": {"cpu": "2"}}}, LIMIT, "spec.resources.requests"),
        ({"resources": {"requests": {"nvidia.com/gpu": "1"}}}, NOBODYS, "spec.resources.limits"),
        (
            {"podOverrides": {"tolerations": [{"key": "gpu", "value": "v", "operator": "Exists"}]}},
            "spec.tolerations[0].operator: Invalid value: v",
            "spec.podOverrides.tolerations[0].operator",
        ),
        ({"podOverrides": {"labels": {"a key": "value"}}}, KEY, "spec.podOverrides.labels"),
    ],
)
def test_a_spec_that_makes_invalid_pods_ends_the_run_and_names_the_field(
    spec: dict[str, Any], said: str, told: str
) -> None:
    plan = refused(a_training_run(**spec), said)
    assert (plan.status["phase"], plan.status["reason"]) == ("Failed", "BadSpec")
    assert condition(plan, "Accepted")["status"] == "False"
    message = condition(plan, "Accepted")["message"]
    assert told in message and message.endswith("create the run again")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, LIMIT),
        ({"resources": {"requests": {"cpu": "4"}, "limits": {"memory": "2Gi"}}}, LIMIT),
        ({"resources": {"limits": {"cpu": "2"}}}, LIMIT),
        ({}, "spec.tolerations[0].operator: Invalid value: v"),
        ({"podOverrides": {"labels": {"team": "a"}}}, KEY),
    ],
)
def test_what_the_namespace_fills_in_is_no_mistake_of_the_spec(spec: dict[str, Any], said: str) -> None:
    plan = refused(a_training_run(**spec), said)
    assert (plan.status["phase"], plan.status["reason"]) == ("Starting", "ObjectsRefused")
    message = condition(plan, "Ready")["message"]
    assert said in message and ("LimitRange" in message) == (said == LIMIT)


@pytest.mark.parametrize(
    "said",
    [
        'Pod x: Pod "x" is invalid: spec.containers[1].image: Required value',  # of a container that a webhook added
        "Pod x: pods \"x\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no spec.tolerations here",
        'Pod x: admission webhook "p" denied the request: Pod "x" is invalid: spec.tolerations',
    ],
)
def test_what_others_refuse_is_no_mistake_of_the_spec(said: str) -> None:
    run = a_training_run(podOverrides={"tolerations": [{"key": "gpu"}]})
    assert decide(run, previous=decide(run).status, apply_error=said).status["reason"] == "ObjectsRefused"


def test_a_run_whose_pods_were_taken_once_is_not_failed_for_invalid_ones() -> None:
    run = a_training_run(podOverrides={"tolerations": [{"key": "gpu"}]})
    failed = decide(run, previous=started(run), pods=(a_failed_pod(0), a_failed_pod(1)))
    refusal = 'Pod x: Pod "x" is invalid: spec.tolerations[0].operator: Invalid value: v'
    again = decide(run, after_s=60, previous=failed.status, apply_error=refusal)
    assert (again.status["phase"], again.status["reason"]) == ("Recovering", "ObjectsRefused")


def test_a_time_that_there_is_not_in_utc_is_not_shown() -> None:
    run = a_training_run()
    held = bucket(epoch=1, step=12)
    assert held.checkpoint is not None
    spoiled = replace(held, checkpoint=replace(held.checkpoint, saved_at="0001-01-01T00:00:00+14:00"))
    plan = decide(run, previous=started(run), pods=(a_pod(0), a_pod(1)), instances=(spoiled,))
    shown = plan.status["stages"][0]["checkpoint"]
    assert shown["step"] == 12 and "savedAt" not in shown and "checkpointTime" not in plan.status["display"]


@pytest.mark.parametrize(("policy", "deleted"), [("Running", 1), ("All", 2), ("None", 1)])
def test_pods_are_cleaned_as_the_policy_says(policy: str, deleted: int) -> None:
    run = a_training_run(cleanPodPolicy=policy)
    plan = decide(run, previous=started(run), pods=(a_failed_pod(0, 64), a_pod(1)))
    assert plan.status["phase"] == "Failed"
    assert len(plan.deletes) == deleted


def test_a_finished_run_is_deleted_when_its_time_is_over_and_not_before() -> None:
    run = a_training_run(ttlSecondsAfterFinished=100)
    status = decide(run, instances=(bucket(epoch=4, step=48),)).status
    early = decide(run, after_s=99, previous=status)
    assert not early.delete_self and early.requeue_after_s == 1
    assert decide(run, after_s=100, previous=status).delete_self


def test_an_erased_status_is_rebuilt_from_pods_and_bucket() -> None:
    run = a_training_run()
    held = replace(bucket(epoch=1, step=12, attempts=2), progress=record(attempt=2))
    pods = (a_pod(0, attempt=2), a_pod(1, attempt=2))
    plan = decide(run, after_s=60, pods=pods, instances=(held,))
    assert not plan.creates and not plan.deletes and not plan.claim_attempt
    assert plan.status["phase"] == "Running"
    assert plan.status["stages"][0]["attempt"] == 2
    assert plan.status["display"]["epoch"] == "1/4"


def test_a_renamed_config_key_is_noticed_though_the_api_server_lets_it_pass() -> None:
    status = started(a_training_run(config={"lr": 1}))
    plan = decide(a_training_run(config={"momentum": 1}), previous=status, pods=(a_failed_pod(0), a_failed_pod(1)))
    assert condition(plan, "Accepted")["reason"] == "ConfigChanged"
    assert not plan.creates


def test_before_the_first_attempt_no_config_is_fixed_whatever_hash_a_status_holds() -> None:
    status = decide(a_training_run(), caches=()).status
    plan = decide(a_training_run(), previous=status | {"configHash": "f" * 64})
    assert condition(plan, "Accepted")["status"] == "True" and plan.claim_attempt


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    run = a_training_run()
    status = started(run)
    later = decide(run, after_s=500, previous=status, pods=(a_pod(0), a_pod(1)))
    assert later.status == status


def test_volcano_is_told_once_of_each_checkpoint_and_no_other_scheduler_is() -> None:
    run = a_training_run(scheduling={"schedulerName": "volcano"})
    before, seen = started(run), {"instances": (bucket(epoch=1, step=12, attempts=1),)}
    told = decide(run, previous=before, pods=(a_pod(0), a_pod(1)), **seen).annotates
    at = "2026-01-01T12:00:00Z"
    assert [(t.name, t.key, t.value) for t in told] == [
        (a_pod(rank).name, "volcano.sh/last-checkpoint-time", at) for rank in (0, 1)
    ]
    half = (a_pod(0, checkpoint_time=at), a_pod(1))
    assert [t.name for t in decide(run, previous=before, pods=half, **seen).annotates] == [a_pod(1).name]
    plain = a_training_run()
    assert not decide(plain, previous=started(plain), pods=(a_pod(0), a_pod(1)), **seen).annotates


def test_a_rank_killed_for_memory_names_the_limit_and_only_what_can_be_done() -> None:
    limits = {"limits": {"memory": "300Mi"}}
    run = a_training_run(resources=limits)
    killed = (a_pod(0), a_failed_pod(1, 137, reason="OOMKilled"))
    message = decide(run, previous=started(run), pods=killed).status["lastFailure"]["message"]
    assert "resources.limits.memory (300Mi); if it happens again, create a run with more memory, or one" in message
    again = decide(run, previous=started(run), pods=killed, instances=(bucket(1, 12, 1),)).status["lastFailure"][
        "message"
    ]
    assert "with more memory that continues from here (checkpoint.from), or one with smaller batches" in again
    last = a_training_run(resources=limits, failurePolicy={"maxRestarts": 0})
    plan = decide(last, previous=started(last), pods=killed)
    told = condition(plan, "Failed")["message"]
    assert plan.status["phase"] == "Failed" and "(300Mi); create a run with more memory" in told
    assert not any(words in told for words in ("happens again", "checkpoint"))
    assert "happens again" not in plan.status["lastFailure"]["message"]


def test_a_pod_that_somebody_deletes_is_told_with_its_budget() -> None:
    run = a_training_run()
    pod = a_failed_pod(1, 75, message="stopped on request after step 46")
    message = decide(run, after_s=30, previous=started(run), pods=(a_pod(0), pod)).status["lastFailure"]["message"]
    assert "was deleted or stopped by somebody, not by the operator; that counts against no budget" in message
    assert message.endswith("stopped on request after step 46")
