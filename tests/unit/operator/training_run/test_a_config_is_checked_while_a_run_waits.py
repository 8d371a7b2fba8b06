"""A run that waits has its configuration judged by a small pod; one that can start at once costs none."""

import hashlib
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lead_operator.decisions.observed import ObservedCache, ObservedInstance, ObservedPod, ObservedRun
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.training_run.config_check import ANSWER_WITHIN_S, CHECK_AFTER_S
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.objects.check_pod import ACTIVE_S, START_WITHIN_S
from lead_operator.resources.training_run import TrainingRun
from lead_operator.settings import Settings
from lead_protocol.check_record import CheckRecord
from lead_protocol.job import CheckJob, parse_job
from lead_protocol.run_records import RunEnd
from lead_testing.makers import NOW, SETTINGS, a_pod, a_ready_cache, a_training_run

RUN = a_training_run(
    config={"batch_size": 4},
    stages=[{"name": "train", "epochs": 4, "config": {"lr": 0.1}}, {"name": "tune", "epochs": 1}],
    resources={"requests": {"cpu": "8", "memory": "64Gi"}, "limits": {"nvidia.com/gpu": 4, "memory": "64Gi"}},
)
BUILDING = (ObservedCache("towns", found=True, recipe="lead", message="2 of 9 shards"),)
WAITED = CHECK_AFTER_S + 1
ACCEPTED = CheckRecord(accepted=True).model_dump_json()
REFUSED = CheckRecord(accepted=False, message="batchsize: unknown key; did you mean batch_size?").model_dump_json()


def decide(
    run: TrainingRun = RUN,
    *,
    after_s: float = 0,
    previous: dict[str, Any] | None = None,
    settings: Settings = SETTINGS,
    **fields: Any,
) -> Plan:
    seen: dict[str, Any] = {"caches": BUILDING, "service_exists": True} | fields
    seen.setdefault("instances", (ObservedInstance("train", 0),))
    observed = ObservedRun(now=NOW + timedelta(seconds=after_s), previous=previous or {}, **seen)
    return decide_training_run(run, observed, settings)


def waiting(run: TrainingRun = RUN, settings: Settings = SETTINGS, **fields: Any) -> Plan:
    """What follows when the run has waited for longer than a quick start takes."""
    return decide(run, after_s=WAITED, previous=decide(run, settings=settings).status, settings=settings, **fields)


def check_pod(run: TrainingRun = RUN, settings: Settings = SETTINGS, **fields: Any) -> ObservedPod:
    (body,) = waiting(run, settings).tries
    values = {"role": "check", "stage": "", "attempt": 0, "name": body["metadata"]["name"]} | fields
    return a_pod(0, **values)


def condition(plan: Plan, kind: str = "ConfigChecked") -> dict[str, Any]:
    return next((c for c in plan.status["conditions"] if c["type"] == kind), {})


def test_a_run_that_can_start_at_once_costs_no_pod() -> None:
    begun = decide(caches=(a_ready_cache(),))
    assert begun.claim_attempt and not begun.tries and not condition(begun)
    up = decide(previous=begun.status, pods=(a_pod(0), a_pod(1)), caches=(a_ready_cache(),), after_s=WAITED)
    assert not up.tries and not condition(up)


def test_a_wait_of_seconds_costs_none_either_and_is_looked_at_in_time() -> None:
    first = decide()
    assert not first.tries and first.requeue_after_s == CHECK_AFTER_S
    again = decide(previous=first.status, after_s=CHECK_AFTER_S - 3)
    assert not again.tries and again.requeue_after_s == 3


def test_the_pod_is_small_and_holds_no_key_of_the_store() -> None:
    (body,) = waiting().tries
    spec, (container,) = body["spec"], body["spec"]["containers"]
    assert body["metadata"]["labels"]["lead.dev/role"] == "check"
    assert spec["serviceAccountName"] == SETTINGS.run_service_account and spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    assert spec["activeDeadlineSeconds"] == ANSWER_WITHIN_S, "the kubelet counts the pull of the image too"
    assert {volume["name"] for volume in spec["volumes"]} == {"job", "scratch", "tmp"}
    assert not [each for each in container["env"] if each["name"].startswith(("LEAD_S3", "LEAD_ST"))]
    asked, limits = container["resources"]["requests"], container["resources"]["limits"]
    assert (asked["cpu"], asked["memory"], limits["cpu"], limits["memory"]) == ("100m", "1Gi", "1", "4Gi")
    assert "nvidia.com/gpu" not in {**asked, **limits}
    job = parse_job(body["metadata"]["annotations"]["lead.dev/job"])
    assert isinstance(job, CheckJob)
    assert [(each.stage, each.config) for each in job.train_jobs] == [
        ("train", {"batch_size": 4, "lr": 0.1}),
        ("tune", {"batch_size": 4}),
    ]
    assert {(each.nodes, each.procs_per_node) for each in job.train_jobs} == {(2, 4)}


def test_no_queue_and_no_gang_scheduler_takes_it_for_a_rank() -> None:
    over = {
        "labels": {"scheduling.x-k8s.io/pod-group": "gang"},
        "annotations": {"scheduling.k8s.io/group-name": "gang"},
        "nodeSelector": {"gpu": "a100"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    }
    run = a_training_run(podOverrides=over, scheduling={"queueName": "research", "schedulerName": "volcano"})
    (body,) = waiting(run).tries
    said = json.dumps([body["metadata"]["labels"], body["metadata"]["annotations"], body["spec"]])
    assert not [word for word in ("gang", "research", "volcano", "kueue") if word in said]
    assert body["spec"]["nodeSelector"] == {"gpu": "a100"} and body["spec"]["tolerations"]


def test_it_never_asks_for_more_than_a_pod_of_the_run() -> None:
    (body,) = waiting(a_training_run(resources={"requests": {"memory": "300Mi"}, "limits": {"memory": "500Mi"}})).tries
    resources = body["spec"]["containers"][0]["resources"]
    assert (resources["requests"]["memory"], resources["limits"]["memory"]) == ("300Mi", "500Mi")


@pytest.mark.parametrize("reason", ["SchedulingGated", "Unschedulable", "", "refused"])
def test_a_first_attempt_that_waits_for_a_queue_a_quota_or_a_node_is_checked(reason: str) -> None:
    begun = decide(caches=(a_ready_cache(),))
    pods = (a_pod(0, phase="Pending", started_at=None, node="", waiting_reason=reason),)
    error = "pods are forbidden: exceeded quota" if reason == "refused" else ""
    held = pods if reason != "refused" else ()
    seen: dict[str, Any] = {"caches": (a_ready_cache(),), "pods": held, "apply_error": error}
    early = decide(previous=begun.status, after_s=CHECK_AFTER_S - 1, **seen)
    plan = decide(previous=begun.status, after_s=WAITED, **seen)
    assert not early.tries
    assert bool(plan.tries) == bool(reason)


def test_a_refused_configuration_ends_the_run_before_anything_was_spent() -> None:
    ended = waiting(checks=(check_pod(phase="Failed", exit_code=64, message=REFUSED),))
    assert (ended.status["phase"], ended.status["reason"]) == ("Failed", "BadConfig")
    said = "batchsize: unknown key; did you mean batch_size?; a finished run never restarts"
    assert condition(ended, "Failed")["message"].startswith(said)
    assert condition(ended)["status"] == condition(ended, "Accepted")["status"] == "False"
    assert not ended.tries and not ended.creates and ended.status["restarts"]["total"] == 0
    assert [note.reason for note in ended.events] == ["Failed"]


def test_pods_that_wait_in_a_queue_go_with_it() -> None:
    begun = decide(caches=(a_ready_cache(),))
    gated = tuple(a_pod(n, phase="Pending", started_at=None, node="", waiting_reason="SchedulingGated") for n in (0, 1))
    refused = check_pod(phase="Failed", exit_code=69, message=REFUSED)
    ended = decide(previous=begun.status, after_s=60, caches=(a_ready_cache(),), pods=gated, checks=(refused,))
    assert (ended.status["phase"], ended.status["reason"]) == ("Failed", "NoSuchRecipe")
    assert {each.name for each in ended.deletes} == {pod.name for pod in gated}


def test_an_answer_is_kept_and_not_asked_for_again() -> None:
    answered = check_pod(phase="Succeeded", message=ACCEPTED)
    told = waiting(checks=(answered,))
    assert condition(told)["status"] == "True" and told.status["phase"] == "Caching" and not told.tries
    without_pod = decide(previous=told.status, after_s=3600)
    assert not without_pod.tries and condition(without_pod) == condition(told)
    begun = decide(previous=told.status, after_s=3600, caches=(a_ready_cache(),), checks=(answered,))
    assert begun.claim_attempt and condition(begun) == condition(told) and answered.uid not in ids(begun)
    up = decide(previous=begun.status, after_s=3700, caches=(a_ready_cache(),), checks=(answered,),
              pods=(a_pod(0), a_pod(1)))  # fmt: skip
    assert ids(up) == {answered.uid} and condition(up) == condition(told)


@pytest.mark.parametrize("policy, goes", [("Running", True), ("All", True), ("None", False)])
def test_one_that_was_seen_by_no_look_while_the_run_trained_goes_after_its_end(policy: str, goes: bool) -> None:
    run = replace(RUN, clean_pod_policy=policy)
    answered = check_pod(run, phase="Succeeded", message=ACCEPTED)
    told = waiting(run, checks=(answered,))
    end = RunEnd(phase="Succeeded", reason="AllStagesDone", message="trained", ended_at="2026-01-01T11:00:00Z")
    over = decide(run, previous=told.status, after_s=3600, caches=(a_ready_cache(),), checks=(answered,), ended=end)
    after = decide(run, previous=over.status, after_s=3601, caches=(a_ready_cache(),), checks=(answered,), ended=end)
    assert over.status["phase"] == "Succeeded" and (answered.uid in ids(after)) is goes
    refused = check_pod(run, phase="Failed", exit_code=64, message=REFUSED)
    failed = waiting(run, checks=(refused,))
    assert failed.status["phase"] == "Failed"
    kept = decide(run, previous=failed.status, after_s=3600, checks=(refused,))
    assert (refused.uid in ids(kept)) is (policy == "All"), "its log says why the run has failed"


def ids(plan: Plan) -> set[str]:
    return {each.uid for each in plan.deletes}


@pytest.mark.parametrize(
    "ended",
    [
        {"phase": "Failed", "exit_code": 137, "reason": "OOMKilled"},
        {"phase": "Failed", "exit_code": None, "reason": "DeadlineExceeded", "message": "active for too long"},
        # An image of another release does not know the job: its exit code alone refuses nothing.
        {"phase": "Failed", "exit_code": 64, "reason": "Error", "message": "job file: kind: not one of train, build"},
        {"phase": "Succeeded", "message": "done"},
        {"phase": "Failed", "exit_code": 64, "message": ACCEPTED},
        {"phase": "Pending", "started_at": None, "waiting_reason": "ImagePullBackOff",
         "created_at": NOW - timedelta(seconds=ANSWER_WITHIN_S)},
    ],
)  # fmt: skip
def test_a_pod_that_does_not_answer_holds_nothing_up(ended: dict[str, Any]) -> None:
    pod = check_pod(**ended)
    told = waiting(checks=(pod,))
    assert condition(told)["status"] == "Unknown" and condition(told)["reason"] == "NoAnswer"
    assert told.status["phase"] == "Caching" and not told.tries and not told.events
    assert ids(told) == (set() if pod.terminal else {pod.uid})
    begun = decide(previous=told.status, after_s=3600, caches=(a_ready_cache(),), checks=(pod,))
    assert begun.claim_attempt


def seen_after(waited_s: float, pod: ObservedPod) -> Plan:
    return decide(previous=waiting().status, after_s=waited_s, checks=(pod,))


def test_a_slow_schedule_or_pull_takes_nothing_of_the_time_to_answer() -> None:
    """The node is loaded: the container starts nearly ten minutes after the pod was created."""
    late_s = START_WITHIN_S - 5
    waits = check_pod(phase="Pending", started_at=None, created_at=NOW, waiting_reason="ContainerCreating")
    plan = seen_after(late_s, waits)
    assert not condition(plan) and not ids(plan) and plan.requeue_after_s == 5
    starts = check_pod(created_at=NOW, started_at=NOW + timedelta(seconds=late_s))
    plan = seen_after(late_s + ACTIVE_S - 5, starts)
    assert not condition(plan) and not ids(plan) and plan.requeue_after_s == 5
    answered = replace(starts, phase="Succeeded", exit_code=0, message=ACCEPTED)
    assert condition(seen_after(late_s + ACTIVE_S - 4, answered))["reason"] == "Accepted"


@pytest.mark.parametrize(
    "started_s, now_s, said",
    [
        (400, 400 + ACTIVE_S, "none within 300 s of its start"),
        (None, START_WITHIN_S, "not started within 600 s"),
        (-3600, ACTIVE_S, "none within 300 s of its start"),  # by a node's clock that is behind
        (3600, ANSWER_WITHIN_S, "none within 300 s of its start"),  # by one that is ahead
    ],
)
def test_a_check_that_never_answers_is_a_note_and_the_run_goes_on_to_its_pods(
    started_s: float | None, now_s: float, said: str
) -> None:
    started = None if started_s is None else NOW + timedelta(seconds=started_s)
    pod = check_pod(phase="Pending" if started is None else "Running", created_at=NOW, started_at=started)
    assert not condition(seen_after(now_s - 1, pod))
    told = seen_after(now_s, pod)
    assert (condition(told)["status"], condition(told)["reason"]) == ("Unknown", "NoAnswer")
    assert f"({said}); the run's own pods check the configuration" in condition(told)["message"]
    assert told.status["phase"] == "Caching" and ids(told) == {pod.uid} and not told.tries
    begun = decide(previous=told.status, after_s=now_s + 9, caches=(a_ready_cache(),), checks=(pod,))
    assert begun.claim_attempt and begun.creates and condition(begun) == condition(told)


def test_no_run_waits_for_its_check() -> None:
    pod = check_pod()
    begun = decide(previous=waiting(checks=(pod,)).status, after_s=60, caches=(a_ready_cache(),), checks=(pod,))
    assert begun.claim_attempt and begun.creates and ids(begun) == {pod.uid}


def test_another_configuration_and_another_image_are_checked_again() -> None:
    told = waiting(checks=(check_pod(phase="Succeeded", message=ACCEPTED),))
    (first,) = waiting().tries
    mended = replace(RUN, config={"batch_size": 8})
    newer = replace(SETTINGS, trainer_image="registry.example/lead-trainer@sha256:" + "b" * 64)
    for run, settings in ((mended, SETTINGS), (RUN, newer)):
        plan = decide(run, previous=told.status, after_s=60, settings=settings)
        assert [each["metadata"]["name"] for each in plan.tries] != [first["metadata"]["name"]] and plan.tries
        assert not condition(plan)
    old = check_pod()
    assert ids(decide(mended, previous=told.status, after_s=60, checks=(old,))) == {old.uid}


def test_a_condition_that_somebody_wrote_ends_no_run() -> None:
    told = waiting(checks=(check_pod(phase="Succeeded", message=ACCEPTED),))
    forged = [{**c, "status": "False", "reason": "BadConfig"} if c["type"] == "ConfigChecked" else c
              for c in told.status["conditions"]]  # fmt: skip
    plan = decide(previous={**told.status, "conditions": forged}, after_s=60)
    assert plan.status["phase"] == "Caching" and plan.tries and not condition(plan)


def test_nothing_is_asked_for_a_run_that_is_suspended_or_not_allowed() -> None:
    assert not waiting(replace(RUN, suspend=True)).tries
    closed = replace(SETTINGS, policy=replace(SETTINGS.policy, max_nodes=1))
    assert not waiting(RUN, closed).tries
    live = check_pod()
    assert ids(waiting(replace(RUN, suspend=True), checks=(live,))) == {live.uid}


def test_the_name_tells_one_configuration_from_another() -> None:
    (body,) = waiting().tries
    name, key = body["metadata"]["name"].rsplit("-", 1)
    assert name == "night-drive-check" and len(key) == 8
    text = json.dumps([decide().status["configHash"], 2, 4, SETTINGS.trainer_image])
    assert key == hashlib.sha256(text.encode()).hexdigest()[:8]
