"""What a run waits for, how long, and what a wait costs it: places, steps, the store, the last words of its pods."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lead_operator.decisions.observed import ObservedCheckpoint, ObservedInstance, ObservedPod, ObservedRun
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.training_run_plan import decide_training_run
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

    def look(self, after_s: float, *pods: ObservedPod, bucket: ObservedInstance | None = TRAINS, **seen: Any) -> Plan:
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
    watched.look(0, bucket=None)
    watched.look(0, *GROUP)
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
    watched.look(0, bucket=None)
    for attempt in range(1, rounds + 1):
        waiting = (a_pod(0, attempt=attempt), half_a_group(attempt)[1])
        watched.look(begun_s + 1, *waiting, bucket=None)
        watched.look(begun_s + 900, *half_a_group(attempt), bucket=None)  # NOW is long ago: no telling wait
        if watched.plan.status["phase"] == "Failed":
            break
        begun_s += 1000
        assert watched.look(begun_s, half_a_group(attempt)[0], bucket=None).claim_attempt
    return begun_s


def test_a_group_that_never_ran_whole_spends_no_budget_however_often_it_waits() -> None:
    watched = Watched(a_training_run(failurePolicy={"maxInfraRestarts": 2}))
    wait_in_vain(watched, 5)
    restarts = watched.plan.status["restarts"]
    assert (restarts["infrastructure"], restarts["program"], restarts["uncounted"]) == (0, 0, 5)
    failure = watched.plan.status["lastFailure"]
    assert (failure["class"], failure["reason"]) == ("Stopped", "GroupIncomplete")
    assert "night-drive-train-s0-a5-1 did not start" in failure["message"] and NO_ADDRESS in failure["message"]


def test_a_rank_whose_pod_was_refused_is_waited_for_alike() -> None:
    watched = Watched(a_training_run())
    watched.look(0, bucket=None)
    watched.look(900, half_a_group(1)[0], bucket=None, apply_error="Pod x: forbidden: exceeded quota: small")
    assert watched.failed_with == "GroupIncomplete"


def test_a_lost_peer_in_a_group_that_ran_counts_as_a_disturbance() -> None:
    watched = training()
    watched.look(900, a_failed_pod(0, 81), a_failed_pod(1, 81))
    assert (watched.failed_with, watched.plan.status["restarts"]["infrastructure"]) == ("LostPeer", 1)


def test_the_pending_deadline_counts_from_the_first_attempt_that_never_ran_whole() -> None:
    watched = Watched(a_training_run(pendingDeadlineSeconds=3600))
    begun_s = wait_in_vain(watched, 3)
    waiting = (a_pod(0, attempt=4), half_a_group(4)[1])
    assert watched.look(begun_s + 599, *waiting, bucket=None).status["phase"] != "Failed"
    ended = watched.look(begun_s + 600, *waiting, bucket=None)
    assert (ended.status["phase"], ended.status["reason"]) == ("Failed", "PendingDeadlineExceeded")
    assert len(ended.deletes) == 2


def test_the_pending_deadline_begins_anew_when_the_group_ran_whole_between() -> None:
    watched = Watched(a_training_run(pendingDeadlineSeconds=3600))
    begun_s = wait_in_vain(watched, 1)
    watched.look(begun_s + 1, a_pod(0, attempt=2), a_pod(1, attempt=2))
    ended = (a_failed_pod(0, 1, attempt=2), a_failed_pod(1, 1, attempt=2))
    watched.look(begun_s + 100, *ended)
    begun = watched.look(begun_s + 200, *ended)
    assert begun.claim_attempt
    assert begun.status["stages"][0]["book"]["attemptTime"] == "2026-01-01T12:20:00Z"


def test_a_cache_that_lies_on_a_lost_node_is_named_with_what_lets_the_rank_begin_elsewhere() -> None:
    watched = Watched(a_training_run(sessionCache={"medium": "PersistentVolume"}))
    for said in (
        "0/3 nodes are available: 3 node(s) had volume node affinity conflict.",
        "0/3 nodes are available: 3 node(s) didn't match PersistentVolume's node affinity.",
    ):
        pod = a_pod(1, phase="Pending", waiting_reason="Unschedulable", waiting_message=said)
        watched.look(1, a_pod(0), pod)
        assert "kubectl delete pvc night-drive-cache-1:" in watched.condition("Ready")["message"]
    small = a_pod(1, phase="Pending", waiting_reason="Unschedulable", waiting_message="3 Insufficient cpu.")
    watched.look(2, a_pod(0), small)
    assert "free resources" in watched.condition("Ready")["message"]


def test_a_pod_that_does_not_go_is_named_when_its_grace_is_over_and_the_next_attempt_still_waits() -> None:
    watched = training(gracePeriodSeconds=120)
    stays = (a_pod(0, deleting=True), a_failed_pod(1))
    watched.look(100, a_pod(0), a_failed_pod(1))
    watched.look(279, *stays)
    assert watched.condition("Ready")["reason"] == "NoAttempt"
    plan = watched.look(280, *stays)
    ready = watched.condition("Ready")
    assert (plan.status["reason"], ready["reason"]) == ("WaitingForOldPods", "WaitingForOldPods")
    assert "pod night-drive-train-s0-a1-0 was told to stop" in ready["message"] and "node-0" in ready["message"]
    assert not plan.claim_attempt and not plan.creates
    assert watched.look(290, a_failed_pod(1)).claim_attempt


# --- steps -----------------------------------------------------------------------------------------------------------


def test_a_long_outage_of_the_store_is_no_hang_when_the_store_is_back() -> None:
    watched = training(failurePolicy={"hangTimeoutSeconds": 100})
    down: dict[str, Any] = {"bucket": None, "store_error": "StoreUnavailable: no answer"}
    watched.look(10, *GROUP, **down)
    watched.look(5000, *GROUP, **down)
    watched.look(5010, *GROUP)  # the mailbox still holds the report of before
    watched.look(5109, *GROUP)
    assert not watched.failed_with
    watched.look(5110, *GROUP)
    assert watched.failed_with == "Hung"


def test_a_storage_profile_that_is_taken_away_ends_no_run() -> None:
    watched = training(failurePolicy={"hangTimeoutSeconds": 100})
    gone: dict[str, Any] = {"bucket": None, "profile_error": "storage profile 'default' is not defined"}
    watched.look(5000, *GROUP, **gone)
    assert not watched.failed_with
    assert watched.condition("Progressing")["status"] == "Unknown"
    ended = (a_pod(0, phase="Succeeded"), a_pod(1, phase="Succeeded"))
    watched.look(9000, *ended, **gone)
    assert not watched.failed_with


def test_a_rank_that_hangs_after_the_others_ended_well_is_a_hang() -> None:
    watched = training(failurePolicy={"hangTimeoutSeconds": 100})
    watched.look(100, a_pod(0, phase="Succeeded"), a_pod(1))
    assert (watched.failed_with, watched.plan.status["lastFailure"]["pod"]) == ("Hung", "night-drive-train-s0-a1-1")


@pytest.mark.parametrize("skew_s", [-7200, 7200])
def test_a_node_whose_clock_is_wrong_is_no_hang(skew_s: int) -> None:
    started_at = NOW + timedelta(seconds=skew_s)
    pods = tuple(a_pod(rank, started_at=started_at) for rank in (0, 1))
    watched = Watched(a_training_run(failurePolicy={"hangTimeoutSeconds": 100}))
    watched.look(0, bucket=None)
    watched.look(50, *pods, bucket=None)
    watched.look(99, *pods, bucket=None)
    assert not watched.failed_with


def test_a_node_whose_clock_is_ahead_holds_no_verdict_back() -> None:
    watched = training()
    ahead = NOW + timedelta(hours=2)
    watched.look(100, a_failed_pod(0, 81, finished_at=ahead), a_pod(1))
    assert watched.failed_with == "LostPeer"
    watched = training()
    done = tuple(a_pod(rank, phase="Succeeded", finished_at=ahead) for rank in (0, 1))
    watched.look(100, *done)
    assert watched.failed_with == "FinalCheckpointMissing"


@pytest.mark.parametrize(
    ("resume", "sound", "reason"), [("Never", "True", "SetAside"), ("Auto", "False", "Quarantined")]
)
def test_checkpoints_that_are_set_aside_because_nothing_resumes_are_not_called_spoiled(
    resume: str, sound: str, reason: str
) -> None:
    watched = training(checkpoint={"resume": resume})
    watched.look(10, *GROUP, bucket=replace(TRAINS, quarantined=("manifest/000000000012.0.json",)))
    found = watched.condition("CheckpointsSound")
    assert (found["status"], found["reason"]) == (sound, reason)


# --- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pod", [a_failed_pod(1, 1), a_failed_pod(1, 64), a_pod(1, node_ready=False)])
def test_what_goes_wrong_after_the_final_checkpoint_spoils_nothing(pod: ObservedPod) -> None:
    if pod.phase == "Running":
        pod = replace(pod, node_not_ready_since=NOW)
    watched = training(failurePolicy={"maxRestarts": 0, "maxInfraRestarts": 0})
    watched.look(90, a_pod(0), pod, bucket=DONE)
    assert (watched.plan.status["phase"], watched.plan.status["reason"]) == ("Running", "Finishing")
    assert "night-drive-train-s0-a1-0" in [deleted.name for deleted in watched.plan.deletes]
    watched.look(91, bucket=DONE)
    assert watched.plan.status["phase"] == "Succeeded"
    assert (watched.failed_with, watched.plan.status["restarts"]["total"]) == ("", 0)


def test_after_the_final_checkpoint_pods_of_earlier_attempts_are_stopped_too() -> None:
    watched = training(failurePolicy={"maxRestarts": 0, "maxInfraRestarts": 0})
    watched.plan.status["stages"][0] |= {"attempt": 2, "book": {"endedAttempt": 1, "created": True}}
    straggler = a_pod(0)
    watched.look(90, a_pod(0, attempt=2), a_failed_pod(1, 1, attempt=2), straggler, bucket=DONE)
    assert watched.plan.status["reason"] == "Finishing"
    assert straggler.name in [deleted.name for deleted in watched.plan.deletes]


def test_a_group_that_hangs_after_the_final_checkpoint_is_done() -> None:
    watched = training(failurePolicy={"maxRestarts": 0, "hangTimeoutSeconds": 100})
    watched.look(50, *GROUP, bucket=DONE)
    watched.look(200, *GROUP, bucket=DONE)
    assert (watched.plan.status["reason"], len(watched.plan.deletes)) == ("Finishing", 2)
    watched.look(210, bucket=DONE)
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
    watched.look(60, *GROUP)
    assert (watched.plan.status["phase"], watched.plan.status["reason"]) == ("Failed", reason)
    assert len(watched.plan.deletes) == 2
    assert not watched.look(61, a_failed_pod(0), a_failed_pod(1)).deletes


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
    plan = watched.look(after_s, *pods)
    assert (plan.status["phase"], len(plan.deletes), plan.claim_attempt) == ("Failed", 2, True)


def test_a_deadline_takes_nothing_from_a_run_that_is_trained_to_the_end() -> None:
    watched = training(activeDeadlineSeconds=60)
    assert watched.look(60, *GROUP, bucket=DONE).status["phase"] == "Running"
    assert watched.look(70, bucket=DONE).status["phase"] == "Succeeded"
    two = training(activeDeadlineSeconds=60, stages=[{"name": "train", "epochs": 4}, {"name": "tune", "epochs": 1}])
    assert two.look(60, *GROUP, bucket=DONE).status["reason"] == "DeadlineExceeded"
