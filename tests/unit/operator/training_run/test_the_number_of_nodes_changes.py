"""spec.nodes of a run that lives: the recipe is asked, the group commits a checkpoint, and another size goes on."""

from dataclasses import replace
from typing import Any

import pytest

from lead_operator.decisions.observed import ObservedInstance, ObservedPod, ObservedRun
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.policy import Policy
from lead_operator.resources.training_run import TrainingRun
from lead_operator.settings import Settings
from lead_protocol.check_record import CheckRecord
from lead_protocol.job import CheckJob, parse_job
from lead_protocol.run_records import StartedAttempt, parse_started
from lead_testing.makers import NOW, SETTINGS, a_failed_pod, a_pod, a_ready_cache, a_training_run

RUN = a_training_run(nodes=4)
FEWER = replace(RUN, nodes=2)
GROUP = tuple(a_pod(rank, nodes=4) for rank in range(4))
ACCEPTED = CheckRecord(accepted=True).model_dump_json()
TOO_ODD = "batch_size: found 8, expected a multiple of the 3 processes"
REFUSED = CheckRecord(accepted=False, message=TOO_ODD).model_dump_json()


def decide(run: TrainingRun, previous: dict[str, Any], settings: Settings = SETTINGS, **fields: Any) -> Plan:
    seen: dict[str, Any] = {
        "caches": (a_ready_cache(),),
        "service_exists": True,
        "instances": (recorded(1, 4),),
    } | fields
    return decide_training_run(run, ObservedRun(now=NOW, previous=previous, **seen), settings)


def recorded(attempt: int, nodes: int) -> ObservedInstance:
    started = StartedAttempt(attempt=attempt, nodes=nodes, config_hash="", datasets=[])
    return ObservedInstance("train", 0, highest_attempt=attempt, recorded_attempt=attempt, started=started)


def training(run: TrainingRun = RUN, **fields: Any) -> dict[str, Any]:
    """The status of a run whose four pods train."""
    begun = decide(run, {}, instances=(ObservedInstance("train", 0),))
    return decide(run, begun.status, **({"pods": GROUP} | fields)).status


def check_pod(plan: Plan, message: str) -> ObservedPod:
    (body,) = plan.tries
    code = 0 if message == ACCEPTED else 64
    values: dict[str, Any] = {"role": "check", "stage": "", "attempt": 0, "name": body["metadata"]["name"]}
    return a_pod(0, phase="Failed" if code else "Succeeded", exit_code=code, message=message, **values)


def condition(plan: Plan, kind: str) -> dict[str, Any]:
    return next((c for c in plan.status["conditions"] if c["type"] == kind), {})


def test_the_recipe_is_asked_while_the_group_goes_on() -> None:
    plan = decide(FEWER, training(), pods=GROUP)
    assert not plan.deletes and not plan.claim_attempt and plan.status["pods"] == {"desired": 4, "ready": 4}
    (body,) = plan.tries
    job = parse_job(body["metadata"]["annotations"]["lead.dev/job"])
    assert isinstance(job, CheckJob) and job.nodes == 2


def test_an_accepted_number_ends_the_attempt_before_its_pods_go() -> None:
    before = training()
    check = check_pod(decide(FEWER, before, pods=GROUP), ACCEPTED)
    plan = decide(FEWER, before, pods=GROUP, checks=(check,))
    assert plan.claim_attempt, "the end is written before a pod is deleted: its exit is no failure"
    assert {each.name for each in plan.deletes} >= {pod.name for pod in GROUP}
    assert all(each.grace_period_s is None for each in plan.deletes), "each commits a checkpoint within its own grace"
    assert (plan.status["phase"], plan.status["reason"]) == ("Checkpointing", "Resizing")
    said = "4 pods commit a checkpoint and stop; 2 go on from it, as spec.nodes wants"
    assert condition(plan, "Progressing")["message"] == said
    assert condition(plan, "Suspended")["reason"] == "NotAsked"
    assert [note.reason for note in plan.events if note.reason == "Resizing"] == ["Resizing"]


def test_the_next_attempt_has_the_new_number_once_the_old_pods_are_gone() -> None:
    before = training()
    check = check_pod(decide(FEWER, before, pods=GROUP), ACCEPTED)
    ended = decide(FEWER, before, pods=GROUP, checks=(check,))
    going = tuple(replace(pod, deleting=True) for pod in GROUP)
    waits = decide(FEWER, ended.status, pods=going, checks=(check,))
    assert not waits.creates and waits.status["phase"] == "Checkpointing"
    plan = decide(FEWER, waits.status, checks=(check,))
    pods = [body for body in plan.creates if body["kind"] == "Pod"]
    assert [body["metadata"]["labels"]["lead.dev/rank"] for body in pods] == ["0", "1"]
    assert {body["metadata"]["labels"]["lead.dev/nodes"] for body in pods} == {"2"}
    jobs = [parse_job(body["metadata"]["annotations"]["lead.dev/job"]) for body in pods]
    assert {job.nodes for job in jobs if hasattr(job, "nodes")} == {2}
    restarts = plan.status["restarts"]
    assert (restarts["program"], restarts["infrastructure"], restarts["voluntary"]) == (0, 0, 0)
    group = tuple(a_pod(rank, attempt=2, nodes=2) for rank in range(2))
    runs = decide(FEWER, plan.status, pods=group)
    assert runs.status["pods"] == {"desired": 2, "ready": 2}
    (record,) = runs.records
    started = parse_started(record.data)
    assert started is not None and (started.attempt, started.nodes) == (2, 2)


def test_a_number_that_the_recipe_refuses_is_named_and_not_used() -> None:
    odd, before = replace(RUN, nodes=3), training()
    check = check_pod(decide(odd, before, pods=GROUP), REFUSED)
    plan = decide(odd, before, pods=GROUP, checks=(check,))
    assert not [each for each in plan.deletes if each.name != check.name] and plan.status["pods"]["desired"] == 4
    found = condition(plan, "ConfigChecked")
    assert (found["status"], found["reason"]) == ("False", "NodesRefused")
    assert found["message"].startswith(f"{TOO_ODD}; the run goes on with 4; correct spec.nodes (check ")
    assert [note.type for note in plan.events if note.reason == "NodesRefused"] == ["Warning"]
    again = decide(odd, plan.status, pods=GROUP)
    assert not again.tries and not again.deletes, "asked once, whatever becomes of the check pod"
    failed = (a_failed_pod(0, nodes=4), *GROUP[1:])
    after = decide(odd, again.status, pods=failed)
    gone = decide(odd, after.status)
    pods = [body for body in gone.creates if body["kind"] == "Pod"]
    assert len(pods) == 4, "after a failure too, the run goes on with the number that fits"
    back = decide(RUN, again.status, pods=GROUP)
    assert not back.deletes and not condition(back, "ConfigChecked")


def test_no_attempt_begins_with_a_number_that_nobody_has_checked() -> None:
    suspended = replace(RUN, suspend=True)
    stopped = decide(suspended, decide(suspended, training(), pods=GROUP).status)
    assert stopped.status["phase"] == "Suspended"
    asked = decide(replace(suspended, nodes=2), stopped.status)
    assert len(asked.tries) == 1, "asked while the run is suspended"
    waits = decide(FEWER, asked.status)
    assert (waits.status["reason"], waits.creates) == ("CheckingNodes", ())
    plan = decide(FEWER, waits.status, checks=(check_pod(asked, ACCEPTED),))
    assert len([body for body in plan.creates if body["kind"] == "Pod"]) == 2


def test_a_group_that_waits_for_nodes_is_made_smaller_too() -> None:
    waiting: dict[str, Any] = {"phase": "Pending", "started_at": None, "waiting_reason": "Unschedulable"}
    group = (*GROUP[:2], a_pod(2, nodes=4, **waiting), a_pod(3, nodes=4, **waiting))
    before = training(pods=group)
    check = check_pod(decide(FEWER, before, pods=group), ACCEPTED)
    plan = decide(FEWER, before, pods=group, checks=(check,))
    assert plan.claim_attempt and {each.name for each in plan.deletes} >= {pod.name for pod in group}


def test_more_nodes_than_the_administrator_allows_are_not_used() -> None:
    settings, before = replace(SETTINGS, policy=Policy(max_nodes=4)), training()
    more = replace(RUN, nodes=8)
    plan = decide(more, before, settings, pods=GROUP)
    assert not plan.tries and not plan.deletes
    said = condition(plan, "Accepted")
    assert (
        said["status"] == "True" and "goes on with 4 pods" in said["message"] and "spec.nodes is 8" in said["message"]
    )
    fewer = decide(FEWER, before, replace(SETTINGS, policy=Policy(max_nodes=1)), pods=GROUP)
    assert len(fewer.tries) == 1, "a list that was tightened refuses nobody fewer nodes"


@pytest.mark.parametrize("erased", [False, True])
def test_an_operator_that_forgot_sees_by_the_pods_how_many_there_are(erased: bool) -> None:
    before = training()
    check = check_pod(decide(FEWER, before, pods=GROUP), ACCEPTED)
    plan = decide(FEWER, {} if erased else before, pods=GROUP, checks=(check,))
    assert {each.name for each in plan.deletes} >= {pod.name for pod in GROUP}


def test_pods_that_do_not_agree_on_the_number_are_replaced() -> None:
    mixed = (*GROUP[:3], a_pod(3, nodes=2))
    before = training()
    check = check_pod(decide(replace(RUN, nodes=2), before, pods=GROUP), ACCEPTED)
    plan = decide(FEWER, before, pods=mixed, checks=(check,))
    assert {each.name for each in plan.deletes} >= {pod.name for pod in mixed}


def test_pods_of_an_operator_that_knew_one_number_are_left_alone() -> None:
    unlabelled = tuple(a_pod(rank) for rank in range(4))
    old = recorded(1, 0)
    plan = decide(RUN, training(), pods=unlabelled, instances=(old,))
    assert not plan.deletes and not plan.tries and not plan.claim_attempt


def test_a_run_that_has_its_final_checkpoint_is_not_restarted() -> None:
    before = training()
    done = replace(recorded(1, 4), done=True)
    ended = tuple(replace(pod, phase="Succeeded", exit_code=0, finished_at=NOW) for pod in GROUP)
    plan = decide(FEWER, before, pods=ended, instances=(done,))
    assert not [body for body in plan.creates if body["kind"] == "Pod"]
