"""What a run waits for, how long, and what a wait costs it: places, steps, the store, the last words of its pods."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lead_operator.decisions.observed import (
    ObservedCheckpoint,
    ObservedClaim,
    ObservedInstance,
    ObservedPod,
    ObservedRun,
)
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.remedies import explain_waiting
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.resources.crd_defaults import fill_defaults
from lead_operator.resources.training_run import TrainingRun
from lead_protocol.progress_record import ProgressRecord
from lead_testing.makers import NOW, RUN_UID, SETTINGS, a_failed_pod, a_pod, a_ready_cache, a_run_body, a_training_run

REPORT = ProgressRecord(attempt=1, seq=1, phase="Training", epoch=1, epochs=4, step=12, steps=48)
TRAINS = ObservedInstance("train", 0, progress=REPORT)
CHECKPOINTS = f"runs/team-a/{RUN_UID}/train-s0/checkpoints/"
DONE = ObservedInstance(
    "train", 0, progress=REPORT, checkpoint=ObservedCheckpoint("key", f"{CHECKPOINTS}x/", 48, 4, 1, 10, ""),
    highest_attempt=1,
)  # fmt: skip
GROUP = (a_pod(0), a_pod(1))
NO_ADDRESS = "LostPeer: the address of rank 0, night-drive-train-s0-a1-0.night-drive-ranks, was not known within 900 s"


class Watched:
    """A run that is looked at again and again: each look sees the status that the one before has written."""

    def __init__(self, run: TrainingRun) -> None:
        self.run = run
        self.plan = Plan(status={})

    def observe(
        self, after_s: float, *pods: ObservedPod, bucket: ObservedInstance | None = TRAINS, **seen: Any
    ) -> Plan:
        instances = () if bucket is None else (bucket,)
        seen = {"caches": (a_ready_cache(),), "service_exists": True, "instances": instances, "pods": pods} | seen
        observed = ObservedRun(now=NOW + timedelta(seconds=after_s), previous=self.plan.status, **seen)
        self.plan = decide_training_run(self.run, observed, SETTINGS)
        fill_defaults({**a_run_body(), "status": self.plan.status})
        return self.plan

    @property
    def failed_with(self) -> str:
        return str(self.plan.status.get("lastFailure", {}).get("reason", ""))

    def condition(self, kind: str) -> dict[str, Any]:
        return next(c for c in self.plan.status["conditions"] if c["type"] == kind)


def training(**spec: Any) -> Watched:
    """Returns a run whose two pods train since NOW."""
    watched = Watched(a_training_run(**spec))
    watched.observe(0, bucket=None)
    watched.observe(0, *GROUP)
    return watched


# --- places ----------------------------------------------------------------------------------------------------------


def half_a_group(attempt: int) -> tuple[ObservedPod, ObservedPod]:
    """Returns a pod that gave up its wait, and the one that it waited for."""
    waits = {"waiting_reason": "Unschedulable", "waiting_message": "0/2 nodes are available"}
    return (
        a_failed_pod(0, 81, attempt=attempt, message=NO_ADDRESS),
        a_pod(1, phase="Pending", attempt=attempt, started_at=None, **waits),
    )


def wait_in_vain(watched: Watched, rounds: int) -> int:
    """Plays rounds in which one of two ranks finds no place for 900 s; returns at which second a round last began."""
    begun_s = 0
    watched.observe(0, bucket=None)
    for attempt in range(1, rounds + 1):
        waiting = (a_pod(0, attempt=attempt), half_a_group(attempt)[1])
        watched.observe(begun_s + 1, *waiting, bucket=None)
        watched.observe(begun_s + 900, *half_a_group(attempt), bucket=None)  # NOW is long ago: no telling wait
        if watched.plan.status["phase"] == "Failed":
            break
        begun_s += 1000
        assert watched.observe(begun_s, half_a_group(attempt)[0], bucket=None).claim_attempt
    return begun_s


def test_a_group_that_never_ran_whole_spends_no_budget_however_often_it_waits() -> None:
    watched = Watched(a_training_run(failurePolicy={"maxInfraRestarts": 2}))
    wait_in_vain(watched, 5)
    restarts = watched.plan.status["restarts"]
    assert (restarts["infrastructure"], restarts["program"], restarts["voluntary"]) == (0, 0, 5)
    failure = watched.plan.status["lastFailure"]
    assert (failure["class"], failure["reason"]) == ("Stopped", "GroupIncomplete")
    assert "night-drive-train-s0-a5-1 did not start" in failure["message"] and NO_ADDRESS in failure["message"]


def test_a_rank_whose_pod_was_refused_is_waited_for_alike() -> None:
    watched = Watched(a_training_run())
    watched.observe(0, bucket=None)
    watched.observe(900, half_a_group(1)[0], bucket=None, apply_error="Pod x: forbidden: exceeded quota: small")
    assert watched.failed_with == "GroupIncomplete"


def test_a_lost_peer_in_a_group_that_ran_counts_as_a_disturbance() -> None:
    watched = training()
    watched.observe(900, a_failed_pod(0, 81), a_failed_pod(1, 81))
    assert (watched.failed_with, watched.plan.status["restarts"]["infrastructure"]) == ("LostPeer", 1)


def test_the_pending_deadline_counts_from_the_first_attempt_that_never_ran_whole() -> None:
    watched = Watched(a_training_run(pendingDeadlineSeconds=3600))
    begun_s = wait_in_vain(watched, 3)
    waiting = (a_pod(0, attempt=4), half_a_group(4)[1])
    assert watched.observe(begun_s + 599, *waiting, bucket=None).status["phase"] != "Failed"
    ended = watched.observe(begun_s + 600, *waiting, bucket=None)
    assert (ended.status["phase"], ended.status["reason"]) == ("Failed", "PendingDeadlineExceeded")
    assert len(ended.deletes) == 2


def test_the_pending_deadline_begins_anew_when_the_group_ran_whole_between() -> None:
    watched = Watched(a_training_run(pendingDeadlineSeconds=3600))
    begun_s = wait_in_vain(watched, 1)
    watched.observe(begun_s + 1, a_pod(0, attempt=2), a_pod(1, attempt=2))
    ended = (a_failed_pod(0, 1, attempt=2), a_failed_pod(1, 1, attempt=2))
    watched.observe(begun_s + 100, *ended)
    begun = watched.observe(begun_s + 200, *ended)
    assert begun.claim_attempt
    assert begun.status["stages"][0]["restartState"]["attemptTime"] == "2026-01-01T12:20:00Z"


def test_a_cache_on_a_lost_node_is_named_with_what_frees_the_rank() -> None:
    watched = Watched(a_training_run(sessionCache={"medium": "PersistentVolume"}))
    for said in (
        "0/3 nodes are available: 3 node(s) had volume node affinity conflict.",
        "0/3 nodes are available: 3 node(s) didn't match PersistentVolume's node affinity.",
    ):
        pod = a_pod(1, phase="Pending", waiting_reason="Unschedulable", waiting_message=said)
        watched.observe(1, a_pod(0), pod)
        assert "kubectl delete pvc night-drive-cache-1:" in watched.condition("Ready")["message"]
    small = a_pod(1, phase="Pending", waiting_reason="Unschedulable", waiting_message="3 Insufficient cpu.")
    watched.observe(2, a_pod(0), small)
    assert "free resources" in watched.condition("Ready")["message"]


SAID = "0/3 nodes are available: 3 node(s) had volume node affinity conflict."
CLAIM = ObservedClaim("night-drive-cache-1", "uid-of-the-claim", NOW)


def tied_to_a_lost_node(loss_s: int = 60, **cache: Any) -> tuple[Watched, tuple[ObservedPod, ObservedPod]]:
    """Returns a run whose rank 1 has lost node-1 at 100 s, and the pods of its next attempt, made at 200 s."""
    policy = {"nodeLossSeconds": loss_s}
    watched = training(sessionCache={"medium": "PersistentVolume", **cache}, failurePolicy=policy)
    watched.observe(10, *GROUP)
    watched.observe(170, a_pod(0), a_pod(1, node_ready=False, node_not_ready_since=NOW + timedelta(seconds=100)))
    watched.observe(200)
    made = {"attempt": 2, "created_at": NOW + timedelta(seconds=200)}
    waits = {"phase": "Pending", "node": "", "waiting_reason": "Unschedulable", "waiting_message": SAID}
    return watched, (a_pod(0, **made), a_pod(1, **made, **waits))


def test_the_claim_of_a_lost_node_is_made_anew() -> None:
    watched, pods = tied_to_a_lost_node()
    away = {"node-1": NOW + timedelta(seconds=100)}
    plan = watched.observe(700, *pods, claims=(CLAIM,), nodes_away=away)
    assert [(deleted.name, deleted.uid) for deleted in plan.claim_deletes] == [(CLAIM.name, CLAIM.uid)]
    assert [note.reason for note in plan.events if "node-1" in note.message] == ["Unschedulable", "SessionCacheLost"]
    assert "which is lost: it is recreated" in watched.condition("Ready")["message"]
    going = replace(CLAIM, deleting=True)
    assert not watched.observe(701, *pods, claims=(going,), nodes_away=away).claim_deletes
    plan = watched.observe(702, *pods, nodes_away=away)
    assert "night-drive-cache-1" in [made["metadata"]["name"] for made in plan.creates]
    anew = replace(CLAIM, uid="another", created_at=NOW + timedelta(seconds=702))  # the scheduler has not looked again
    assert not watched.observe(703, *pods, claims=(anew,), nodes_away=away).claim_deletes
    assert (watched.plan.status["stages"][0]["attempt"], watched.plan.status["restarts"]["infrastructure"]) == (2, 1)


def test_a_claim_stays_as_long_as_the_run_lets_nodes_be_away_where_that_is_longer() -> None:
    watched, pods = tied_to_a_lost_node(loss_s=900)
    away = {"node-1": NOW + timedelta(seconds=100)}
    assert not watched.observe(999, *pods, claims=(CLAIM,), nodes_away=away).claim_deletes
    assert watched.observe(1000, *pods, claims=(CLAIM,), nodes_away=away).claim_deletes


@pytest.mark.parametrize(
    ("cache", "away", "said"),
    [
        ({}, {}, SAID),  # the node is there, but full
        ({}, {"node-1": NOW + timedelta(seconds=101)}, SAID),  # it, or another of its zone, may come back
        ({}, {"node-0": NOW}, SAID),
        ({}, {"node-1": NOW}, "3 Insufficient cpu."),
        ({"sharedClaimName": "towns"}, {"node-1": NOW}, SAID),  # others may train from it
    ],
)
def test_a_claim_stays_that_may_be_of_use(cache: dict[str, Any], away: dict[str, Any], said: str) -> None:
    watched, (first, second) = tied_to_a_lost_node(**cache)
    name = "towns-shared-1" if cache else CLAIM.name
    waits = replace(second, waiting_message=said)
    plan = watched.observe(700, first, waits, claims=(replace(CLAIM, name=name),), nodes_away=away)
    assert not plan.claim_deletes
    assert ("kubectl delete pvc" in watched.condition("Ready")["message"]) == (said is SAID)


# --- pods that do not go ---------------------------------------------------------------------------------------------


def told_to_stop(pod: ObservedPod, by_s: float) -> ObservedPod:
    """Returns a pod whose grace ends so many seconds after NOW."""
    return replace(pod, deleting=True, grace_ends_at=NOW + timedelta(seconds=by_s))


def test_a_pod_that_does_not_go_holds_the_next_attempt_up_for_a_minute_and_is_named() -> None:
    watched = training()
    watched.observe(100, a_pod(0), a_failed_pod(1))
    stays = (told_to_stop(a_pod(0), 220), a_failed_pod(1))
    plan = watched.observe(279, *stays)
    assert (plan.claim_attempt, plan.creates, plan.requeue_after_s) == (False, (), 1)
    assert "got a stop signal" not in watched.condition("Ready")["message"]
    plan = watched.observe(280, *stays)
    assert plan.claim_attempt and not plan.deletes
    assert [made["metadata"]["name"] for made in plan.creates] == [a_pod(rank, attempt=2).name for rank in (0, 1)]
    watched.observe(281, *stays, a_pod(0, attempt=2), a_pod(1, attempt=2))
    ready = watched.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "Loading")
    assert f"pod {a_pod(0).name} got a stop signal" in ready["message"] and "node-0" in ready["message"]
    watched.observe(300, a_failed_pod(1), a_pod(0, attempt=2), a_pod(1, attempt=2))
    assert "got a stop signal" not in watched.condition("Ready")["message"]


def test_a_suspended_or_resumed_run_waits_no_longer_for_a_pod_that_does_not_go() -> None:
    watched = training()
    watched.run = replace(watched.run, suspend=True)
    assert len(watched.observe(100, *GROUP).deletes) == 2
    stays = told_to_stop(a_pod(0), 220)
    assert watched.observe(279, stays).status["phase"] == "Checkpointing"
    assert watched.observe(280, stays).status["phase"] == "Suspended"
    for kind in ("Ready", "Suspended"):
        assert stays.name in watched.condition(kind)["message"]
    watched.run = replace(watched.run, suspend=False)
    assert watched.observe(290, stays).claim_attempt


def test_a_suspended_run_stays_so_when_the_node_of_a_pod_that_does_not_go_is_lost() -> None:
    watched = training()
    watched.run = replace(watched.run, suspend=True)
    watched.observe(100, *GROUP)
    stays = told_to_stop(a_pod(0), 220)
    watched.observe(280, stays)
    away = replace(stays, node_ready=False, node_not_ready_since=NOW + timedelta(seconds=300))
    plan = watched.observe(310, away)
    assert (plan.status["phase"], plan.deletes, plan.requeue_after_s) == ("Suspended", (), 10)
    plan = watched.observe(360, away)
    assert (plan.status["phase"], [pod.grace_period_s for pod in plan.deletes]) == ("Suspended", [0])


def test_a_run_that_is_resumed_while_a_pod_still_stops_says_which() -> None:
    watched = training()
    watched.run = replace(watched.run, suspend=True)
    watched.observe(100, *GROUP)
    watched.run = replace(watched.run, suspend=False)
    plan = watched.observe(110, told_to_stop(a_pod(0), 220))
    assert (plan.status["reason"], plan.claim_attempt) == ("WaitingForOldPods", False)
    assert a_pod(0).name in watched.condition("Ready")["message"]


def test_after_the_final_checkpoint_a_pod_that_does_not_go_ends_the_stage_no_later() -> None:
    watched = training()
    ended = a_pod(1, phase="Succeeded")
    stays = told_to_stop(a_pod(0), 220)
    assert watched.observe(279, stays, ended, bucket=DONE).status["phase"] != "Succeeded"
    assert watched.observe(280, stays, ended, bucket=DONE).status["phase"] == "Succeeded"
    assert stays.name in watched.condition("Ready")["message"]
    assert watched.plan.status["restarts"]["total"] == 0


def test_a_rank_that_somebody_stopped_in_vain_ends_its_attempt() -> None:
    watched = training()
    stays = told_to_stop(a_pod(0), 130)
    watched.observe(189, stays, a_pod(1))
    assert not watched.failed_with
    watched.observe(190, stays, a_pod(1))
    assert (watched.failed_with, watched.plan.status["restarts"]["infrastructure"]) == ("PodStays", 1)


def test_a_pod_on_a_node_that_does_not_answer_is_waited_for_until_the_node_is_lost() -> None:
    watched = training(failurePolicy={"nodeLossSeconds": 600})
    watched.observe(100, a_pod(0), a_failed_pod(1))
    away = replace(told_to_stop(a_pod(0), 220), node_ready=False, node_not_ready_since=NOW + timedelta(seconds=100))
    plan = watched.observe(699, away, a_failed_pod(1))
    assert not plan.claim_attempt and not plan.deletes
    plan = watched.observe(700, away, a_failed_pod(1))
    assert [(deleted.name, deleted.grace_period_s) for deleted in plan.deletes] == [(away.name, 0)]


# --- steps -----------------------------------------------------------------------------------------------------------


def test_a_long_outage_of_the_store_is_no_hang_when_the_store_is_back() -> None:
    watched = training(failurePolicy={"hangTimeoutSeconds": 100})
    down: dict[str, Any] = {"bucket": None, "store_error": "StoreUnavailable: no answer"}
    watched.observe(10, *GROUP, **down)
    watched.observe(5000, *GROUP, **down)
    watched.observe(5010, *GROUP)  # the writer still holds the report of before
    watched.observe(5109, *GROUP)
    assert not watched.failed_with
    watched.observe(5110, *GROUP)
    assert watched.failed_with == "Hung"


def test_a_storage_profile_that_is_taken_away_ends_no_run() -> None:
    watched = training(failurePolicy={"hangTimeoutSeconds": 100})
    gone: dict[str, Any] = {"bucket": None, "profile_error": "storage profile 'default' is not defined"}
    watched.observe(5000, *GROUP, **gone)
    assert not watched.failed_with
    assert watched.condition("Progressing")["status"] == "Unknown"
    ended = (a_pod(0, phase="Succeeded"), a_pod(1, phase="Succeeded"))
    watched.observe(9000, *ended, **gone)
    assert not watched.failed_with


def test_a_rank_that_hangs_after_the_others_ended_well_is_a_hang() -> None:
    watched = training(failurePolicy={"hangTimeoutSeconds": 100})
    watched.observe(100, a_pod(0, phase="Succeeded"), a_pod(1))
    assert (watched.failed_with, watched.plan.status["lastFailure"]["pod"]) == ("Hung", "night-drive-train-s0-a1-1")


@pytest.mark.parametrize("skew_s", [-7200, 7200])
def test_a_node_whose_clock_is_wrong_is_no_hang(skew_s: int) -> None:
    started_at = NOW + timedelta(seconds=skew_s)
    pods = tuple(a_pod(rank, started_at=started_at) for rank in (0, 1))
    watched = Watched(a_training_run(failurePolicy={"hangTimeoutSeconds": 100}))
    watched.observe(0, bucket=None)
    watched.observe(50, *pods, bucket=None)
    watched.observe(99, *pods, bucket=None)
    assert not watched.failed_with


def test_a_node_whose_clock_is_ahead_holds_no_verdict_back() -> None:
    watched = training()
    ahead = NOW + timedelta(hours=2)
    watched.observe(100, a_failed_pod(0, 81, finished_at=ahead), a_pod(1))
    assert watched.failed_with == "LostPeer"
    watched = training()
    done = tuple(a_pod(rank, phase="Succeeded", finished_at=ahead) for rank in (0, 1))
    watched.observe(100, *done)
    assert watched.failed_with == "FinalCheckpointMissing"


@pytest.mark.parametrize(
    ("resume", "sound", "reason"), [("Never", "True", "SetAside"), ("Auto", "False", "Quarantined")]
)
def test_checkpoints_set_aside_because_nothing_resumes_are_not_called_spoiled(
    resume: str, sound: str, reason: str
) -> None:
    watched = training(checkpoint={"resume": resume})
    watched.observe(10, *GROUP, bucket=replace(TRAINS, quarantined=("manifest/000000000012.0.json",)))
    found = watched.condition("CheckpointsValid")
    assert (found["status"], found["reason"]) == (sound, reason)


# --- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pod", [a_failed_pod(1, 1), a_failed_pod(1, 64), a_pod(1, node_ready=False)])
def test_what_goes_wrong_after_the_final_checkpoint_spoils_nothing(pod: ObservedPod) -> None:
    if pod.phase == "Running":
        pod = replace(pod, node_not_ready_since=NOW)
    watched = training(failurePolicy={"maxRestarts": 0, "maxInfraRestarts": 0})
    watched.observe(90, a_pod(0), pod, bucket=DONE)
    assert (watched.plan.status["phase"], watched.plan.status["reason"]) == ("Running", "Finishing")
    assert "night-drive-train-s0-a1-0" in [deleted.name for deleted in watched.plan.deletes]
    watched.observe(91, bucket=DONE)
    assert watched.plan.status["phase"] == "Succeeded"
    assert (watched.failed_with, watched.plan.status["restarts"]["total"]) == ("", 0)


def test_after_the_final_checkpoint_pods_of_earlier_attempts_are_stopped_too() -> None:
    watched = training(failurePolicy={"maxRestarts": 0, "maxInfraRestarts": 0})
    watched.plan.status["stages"][0] |= {"attempt": 2, "restartState": {"endedAttempt": 1, "created": True}}
    straggler = a_pod(0)
    watched.observe(90, a_pod(0, attempt=2), a_failed_pod(1, 1, attempt=2), straggler, bucket=DONE)
    assert watched.plan.status["reason"] == "Finishing"
    assert straggler.name in [deleted.name for deleted in watched.plan.deletes]


def test_a_group_that_hangs_after_the_final_checkpoint_is_done() -> None:
    watched = training(failurePolicy={"maxRestarts": 0, "hangTimeoutSeconds": 100})
    watched.observe(50, *GROUP, bucket=DONE)
    watched.observe(200, *GROUP, bucket=DONE)
    assert (watched.plan.status["reason"], len(watched.plan.deletes)) == ("Finishing", 2)
    watched.observe(210, bucket=DONE)
    assert watched.plan.status["phase"] == "Succeeded"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"activeDeadlineSeconds": 60}, "DeadlineExceeded"),
        ({"failurePolicy": {"hangTimeoutSeconds": 60, "maxRestarts": 0}}, "MaxRestarts"),
    ],
)
def test_a_run_that_is_given_up_stops_what_runs_and_keeps_what_ended(spec: dict[str, Any], reason: str) -> None:
    watched = training(cleanPodPolicy="None", **spec)
    watched.observe(60, *GROUP)
    assert (watched.plan.status["phase"], watched.plan.status["reason"]) == ("Failed", reason)
    assert len(watched.plan.deletes) == 2
    assert not watched.observe(61, a_failed_pod(0), a_failed_pod(1)).deletes


@pytest.mark.parametrize(
    ("spec", "pods", "after_s"),
    [
        ({"failurePolicy": {"hangTimeoutSeconds": 60, "maxRestarts": 0}}, GROUP, 60),
        ({"cleanPodPolicy": "All"}, (a_failed_pod(0, 64), a_failed_pod(1, 64)), 10),
        ({"activeDeadlineSeconds": 60}, GROUP, 60),
    ],
)
def test_a_verdict_is_written_before_the_pods_go_that_it_rests_on(
    spec: dict[str, Any], pods: tuple[ObservedPod, ...], after_s: int
) -> None:
    watched = training(**spec)
    plan = watched.observe(after_s, *pods)
    assert (plan.status["phase"], len(plan.deletes), plan.claim_attempt) == ("Failed", 2, True)


def test_a_deadline_takes_nothing_from_a_run_that_is_trained_to_the_end() -> None:
    watched = training(activeDeadlineSeconds=60)
    assert watched.observe(60, *GROUP, bucket=DONE).status["phase"] == "Running"
    assert watched.observe(70, bucket=DONE).status["phase"] == "Succeeded"
    two = training(activeDeadlineSeconds=60, stages=[{"name": "train", "epochs": 4}, {"name": "tune", "epochs": 1}])
    assert two.observe(60, *GROUP, bucket=DONE).status["reason"] == "DeadlineExceeded"


def test_a_device_that_no_node_offers_is_named() -> None:
    said = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu, 1 Insufficient memory."
    told = explain_waiting(a_pod(1, phase="Pending", waiting_reason="Unschedulable", waiting_message=said))
    one = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: not helpful"
    alone = explain_waiting(a_pod(1, phase="Pending", waiting_reason="Unschedulable", waiting_message=one))
    assert "free nvidia.com/gpu, or none offers it: see" in alone, "the scheduler's full stop is not of the name"
    assert (
        "no node has enough free nvidia.com/gpu, or none offers it:" in told
        and "create a run with smaller resources" in told
    )
