"""Exit codes that a user calls fatal end the run at once, and change nothing else."""

from typing import Any

import pytest

from lead_operator.decisions.observed import ObservedPod, ObservedRun
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.resources.crd_defaults import read_schema
from lead_operator.resources.training_run import TrainingRun
from lead_protocol.exit_codes import ExitClass, ExitCode, classify_exit_code
from lead_testing.makers import NOW, SETTINGS, a_failed_pod, a_pod, a_ready_cache, a_training_run

SCHEMA = read_schema("TrainingRun")["properties"]["spec"]["properties"]["failurePolicy"]["properties"]["fatalExitCodes"]
GOING_ON = (ExitClass.DONE, ExitClass.STOPPED, ExitClass.INFRASTRUCTURE)


def decide(run: TrainingRun, status: dict[str, Any], *pods: ObservedPod) -> Plan:
    seen = ObservedRun(now=NOW, previous=status, caches=(a_ready_cache(),), service_exists=True, pods=pods)
    return decide_training_run(run, seen, SETTINGS)


def after(*pods: ObservedPod, codes: list[int] | None) -> Plan:
    """Returns what follows when a whole group of two has run and then looks like this."""
    run = a_training_run(failurePolicy={} if codes is None else {"fatalExitCodes": codes})
    both = decide(run, decide(run, {}).status, a_pod(0), a_pod(1)).status
    return decide(run, both, *pods)


def test_a_listed_code_fails_the_run_at_once_and_says_what_to_do() -> None:
    plan = after(a_pod(0), a_failed_pod(1, 42, message="sensor 3 is dead"), codes=[3, 42])
    assert (plan.status["phase"], plan.status["reason"], plan.status["restarts"]["total"]) == (
        "Failed", "FatalExitCode", 0,
    )  # fmt: skip
    last = plan.status["lastFailure"]
    assert (last["class"], last["exitCode"], last["pod"]) == ("UserError", 42, "night-drive-train-s0-a1-1")
    told = next(c["message"] for c in plan.status["conditions"] if c["type"] == "Failed")
    assert told.startswith("exit code 42 is one of failurePolicy.fatalExitCodes; correct the cause, and create a run")
    assert told.endswith("(checkpoint.from): sensor 3 is dead")


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (a_failed_pod(1, 137, disruption="PreemptionByScheduler"), "PreemptionByScheduler"),
        (a_failed_pod(1, 137, reason="Evicted"), "Evicted"),
        (a_failed_pod(1, 137, deleting=True), "PodDeleted"),
        (a_pod(1, node_ready=False, node_not_ready_since=NOW.replace(hour=11)), "NodeLost"),
        (a_failed_pod(1, 128, reason="StartError"), "ContainerNotStarted"),
        (a_failed_pod(1, 1), "ProgramError"),
    ],
)
def test_what_the_cluster_ended_and_other_codes_are_judged_as_ever(pod: ObservedPod, reason: str) -> None:
    plan = after(a_pod(0), pod, codes=[42, 128, 137])
    assert (plan.status["phase"], plan.status["lastFailure"]["reason"]) == ("Recovering", reason)


@pytest.mark.parametrize("reason", ["StartError", "ContainerCannotRun"])
def test_a_container_that_the_runtime_could_not_start_is_no_error_of_the_program(reason: str) -> None:
    why = "failed to create containerd task: failed to create shim task: context canceled: unknown"
    plan = after(a_pod(0), a_failed_pod(1, 128, reason=reason, message=why, node="gpu-7"), codes=None)
    restarts, last = plan.status["restarts"], plan.status["lastFailure"]
    assert (plan.status["phase"], restarts["program"], restarts["infrastructure"]) == ("Recovering", 0, 1)
    assert (last["class"], last["reason"]) == ("Infrastructure", "ContainerNotStarted")
    assert "runtime of node gpu-7 could not start pod" in last["message"] and why in last["message"]


def test_a_rank_without_memory_is_fatal_where_137_is_listed_and_says_so() -> None:
    pod = a_failed_pod(1, 137, reason="OOMKilled")
    assert after(a_pod(0), pod, codes=None).status["phase"] == "Recovering"
    plan = after(a_pod(0), pod, codes=[137])
    assert (plan.status["phase"], plan.status["reason"]) == ("Failed", "FatalExitCode")
    assert "resources.limits.memory" in plan.status["lastFailure"]["message"]


def test_one_listed_code_of_a_group_weighs_more_than_the_crashes_of_the_others() -> None:
    plan = after(a_failed_pod(0, 134), a_failed_pod(1, 42), codes=[42])
    assert plan.status["lastFailure"]["exitCode"] == 42


def test_the_crd_refuses_the_codes_that_mean_another_attempt_and_no_others() -> None:
    (rule,) = SCHEMA["items"]["x-kubernetes-validations"]
    refused = {int(code) for code in rule["rule"].partition("[")[2].partition("]")[0].split(",")}
    assert refused == {code for code in ExitCode if code and classify_exit_code(code) in GOING_ON}
    told = SCHEMA["description"]
    always = [code for code in range(1, 256) if classify_exit_code(code) is ExitClass.USER_ERROR]
    assert "2, 64 to 74 and 76 to 78" in told and always == [2, *range(64, 75), *range(76, 79)]
