"""When weights are driven in the simulator, and what is reported of it: whatever comes of it, training goes on."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lead_operator.decisions.observed import (
    ObservedCheckpoint,
    ObservedDrive,
    ObservedInstance,
    ObservedPod,
    ObservedRun,
)
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.errors import SpecError
from lead_operator.resources.crd_defaults import fill_defaults
from lead_operator.resources.training_run import TrainingRun
from lead_operator.settings import Settings
from lead_protocol.closed_loop_record import DrivenNumbers
from lead_protocol.job import ClosedLoopJob, parse_job
from lead_protocol.progress_record import ProgressRecord
from lead_protocol.run_records import RunEnd
from lead_testing.makers import NOW, RUN_UID, SETTINGS, a_pod, a_ready_cache, a_run_body, a_training_run

SIMULATOR: dict[str, Any] = {"image": "registry.example/carla:1", "command": ["drive"], "timeoutSeconds": 600}
NUMBERS = DrivenNumbers(
    routes=4, recorded=4, driving_score=70.0, route_completion=90.0, success_whole_route=50.0, success_bench2drive=25.0,
    infractions_per_km={"red_light": 0.5}, interventions=1,
)  # fmt: skip
PREFIX = f"runs/team-a/{RUN_UID}/"


def a_run(epochs: int = 40, **loop: Any) -> TrainingRun:
    return a_training_run(nodes=1, stages=[{"name": "train", "epochs": epochs}], closedLoop={**SIMULATOR, **loop})


def committed(epoch: int, stage: str = "train", seed: int = 0, saved_s: int = 0) -> ObservedInstance:
    keys = f"{PREFIX}{stage}-s{seed}/"
    saved = (NOW + timedelta(seconds=saved_s)).isoformat()
    found = ObservedCheckpoint("key", f"{keys}checkpoints/{epoch * 10:012d}/0001-n/", epoch * 10, epoch, 1, 10, saved)
    record = ProgressRecord(
        attempt=1, seq=1, phase="Training", epoch=epoch, epochs=40, step=epoch * 10 + 1, steps=400
    )  # fmt: skip
    return ObservedInstance(
        stage, seed, progress=record, checkpoint=found if epoch else None, highest_attempt=1, recorded_attempt=1
    )


def a_driver(attempt: int = 1, **fields: Any) -> ObservedPod:
    values = {"role": "closed-loop", "stage": "train", "name": f"night-drive-closed-loop-{attempt}", "epoch": 1}
    return a_pod(0, **(values | {"attempt": attempt, "uid": f"driver-{attempt}"} | fields))


def a_result(attempt: int = 1, epoch: int = 1, score: float = 70.0, **fields: Any) -> ObservedDrive:
    numbers = NUMBERS.model_copy(update={"driving_score": score})
    values: dict[str, Any] = {
        "manifest_key": "m", "stage": "train", "seed": 0, "attempt": attempt, "pod_uid": "u", "epoch": epoch,
        "requested": "", "results_prefix": f"{PREFIX}closed_loop/train-s0/{epoch:04d}/{attempt:06d}/",
        "numbers": numbers, "saved_at": NOW.isoformat(),
    }  # fmt: skip
    return ObservedDrive(**(values | fields))


class Passes:
    """Passes over one run, each over the status that the last one wrote."""

    def __init__(self, run: TrainingRun, settings: Settings = SETTINGS, status: dict[str, Any] | None = None) -> None:
        self.run, self.settings, self.status, self.after_s = run, settings, status or {}, 0.0

    def look(self, epoch: int = 0, *, s: float = 1.0, **fields: Any) -> Plan:
        """Makes a pass `s` seconds after the last one; the newest checkpoint is of `epoch`."""
        self.after_s += s
        seen: dict[str, Any] = {
            "caches": (a_ready_cache(),), "service_exists": True, "instances": (committed(epoch),), "pods": (a_pod(0),),
            "drives_read": True,
        }  # fmt: skip
        observed = ObservedRun(now=NOW + timedelta(seconds=self.after_s), previous=self.status, **(seen | fields))
        plan = decide_training_run(self.run, observed, self.settings)
        fill_defaults({**a_run_body(), "status": plan.status})  # the CRD knows every field of the status
        self.status = plan.status
        return plan

    def fail_twice(self, epoch: int = 1, **pod: Any) -> Plan:
        """Drives with an epoch's weights until both attempts have ended like this."""
        self.look(epoch)
        number = self.drive["attempt"]
        self.look(epoch, drivers=(a_driver(number, **pod),))
        assert self.drive["phase"] == "Retrying"
        self.look(epoch, s=30)
        return self.look(epoch, drivers=(a_driver(number + 1, **pod),))

    @property
    def drive(self) -> dict[str, Any]:
        return dict(self.status["closedLoop"]["drive"])

    @property
    def condition(self) -> tuple[str, str, str]:
        found = next((c for c in self.status["conditions"] if c["type"] == "ClosedLoop"), None)
        return (found["status"], found["reason"], found["message"]) if found else ("", "", "")


def pods_in(plan: Plan) -> list[str]:
    return [made["metadata"]["name"] for made in plan.tries]


def job_of(plan: Plan) -> ClosedLoopJob:
    job = parse_job(plan.tries[0]["metadata"]["annotations"]["lead.dev/job"])
    assert isinstance(job, ClosedLoopJob)
    return job


def test_twenty_due_checkpoints_at_once_start_one_pod_with_the_newest() -> None:
    passes = Passes(a_run())
    assert pods_in(passes.look(0)) == []
    plan = passes.look(20)
    assert pods_in(plan) == ["night-drive-closed-loop-1"] and plan.claim_attempt
    assert (job_of(plan).epoch, job_of(plan).checkpoint_prefix) == (
        20,
        f"{PREFIX}train-s0/checkpoints/{200:012d}/0001-n/",
    )
    assert passes.condition[:2] == ("Unknown", "Driving")
    driver = a_driver(epoch=20)
    for epoch in (21, 22, 23):  # while it drives, nothing is queued
        assert pods_in(passes.look(epoch, drivers=(driver,))) == []
    ended = replace(driver, phase="Succeeded")
    plan = passes.look(24, drivers=(ended,), drives=(a_result(epoch=20),))
    assert pods_in(plan) == ["night-drive-closed-loop-2"] and job_of(plan).epoch == 24


def test_only_the_newest_of_several_stages_is_driven_and_the_others_are_skipped() -> None:
    run = a_training_run(
        nodes=1, parallelism=2, stages=[{"name": "train", "epochs": 9, "seeds": [0, 1]}], closedLoop=SIMULATOR
    )
    passes = Passes(run)
    both = (committed(3, saved_s=5), committed(3, seed=1))
    pods = (a_pod(0), a_pod(0, seed=1))
    plan = passes.look(instances=both, pods=pods)
    assert job_of(plan).seed == 0
    done = a_driver(phase="Succeeded", epoch=3)
    plan = passes.look(instances=both, pods=pods, drivers=(done,), drives=(a_result(epoch=3),))
    assert pods_in(plan) == [] and passes.condition[1] == "Driven"


PERCEPTION_FIRST: list[dict[str, Any]] = [
    {"name": "pretrain", "epochs": 3},
    {"name": "posttrain", "epochs": 3, "initFrom": {"stage": "pretrain"}},
    {"name": "measure", "kind": "Evaluation", "initFrom": {"stage": "posttrain"}},
]


def test_a_stage_without_a_planner_is_not_driven_where_another_is_named() -> None:
    run = a_training_run(nodes=1, stages=PERCEPTION_FIRST, closedLoop={**SIMULATOR, "stages": ["posttrain"]})
    passes = Passes(run)
    first = committed(3, stage="pretrain")
    assert pods_in(passes.look(instances=(first,), pods=(a_pod(0, stage="pretrain"),))) == []
    assert passes.condition == ("Unknown", "NotDriven", "no weights of stage posttrain were driven yet")
    run = passes.run = replace(run, drive_request="now")
    assert pods_in(passes.look(instances=(first,), pods=(a_pod(0, stage="pretrain"),))) == []  # nor by hand
    plan = passes.look(
        instances=(first, committed(1, stage="posttrain", saved_s=9)), pods=(a_pod(0, stage="posttrain"),)
    )
    assert (job_of(plan).stage, job_of(plan).epoch) == ("posttrain", 1)


def test_without_names_every_stage_that_trains_is_driven() -> None:
    run = a_training_run(nodes=1, stages=PERCEPTION_FIRST, closedLoop=SIMULATOR)
    assert run.closed_loop is not None and run.closed_loop.stages == ("pretrain", "posttrain")


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("posttrian", "'posttrian', which is no stage of this run; did you mean posttrain?"),
        ("measure", "'measure', which is a stage of kind Evaluation, without weights of its own"),
        ("x", "'x', which is no stage of this run; stages that train are: pretrain, posttrain"),
    ],
)
def test_a_name_that_is_no_stage_is_refused_with_the_near_one(named: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        a_training_run(stages=PERCEPTION_FIRST, closedLoop={**SIMULATOR, "stages": [named]})
    assert f"TrainingRun team-a/night-drive: spec.closedLoop.stages names {message}" in str(error.value)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([], "is empty; expected one stage that trains or more, of pretrain, posttrain; leave it out to drive"),
        (["posttrain", "posttrain"], "names 'posttrain' twice; name each stage once"),
    ],
)
def test_lists_that_the_api_server_refuses_are_refused_without_one_too(stages: list[str], message: str) -> None:
    with pytest.raises(SpecError) as error:
        a_training_run(stages=PERCEPTION_FIRST, closedLoop={**SIMULATOR, "stages": stages})
    assert f"TrainingRun team-a/night-drive: spec.closedLoop.stages {message}" in str(error.value)


def test_a_second_try_of_a_stage_that_was_taken_out_is_given_up() -> None:
    run = a_training_run(nodes=1, stages=PERCEPTION_FIRST, closedLoop=SIMULATOR)
    passes = Passes(run)
    seen: dict[str, Any] = {"instances": (committed(1, stage="pretrain"),), "pods": (a_pod(0, stage="pretrain"),)}
    passes.look(**seen)
    passes.look(**seen, drivers=(a_driver(stage="pretrain", phase="Failed", exit_code=1),))
    assert passes.drive["phase"] == "Retrying"
    passes.run = a_training_run(nodes=1, stages=PERCEPTION_FIRST, closedLoop={**SIMULATOR, "stages": ["posttrain"]})
    assert pods_in(passes.look(**seen, s=60)) == [] and passes.condition[1] == "Failed"
    assert pods_in(passes.look(**seen, s=60)) == []


def test_a_stage_that_evaluates_has_no_weights_to_drive() -> None:
    measure = {"name": "measure", "kind": "Evaluation", "initFrom": {"stage": "train"}}
    run = a_training_run(nodes=1, stages=[{"name": "train", "epochs": 3}, measure], closedLoop=SIMULATOR)
    passes = Passes(run)
    both = (committed(3), committed(3, stage="measure", saved_s=60))
    assert job_of(passes.look(instances=both)).stage == "train"


@pytest.mark.parametrize(
    ("every", "epochs", "driven"), [(5, [1, 4, 5, 6, 9, 10], [5, 10]), (5, [3, 7, 13], [7, 13]), (0, [1, 2, 40], [])]
)
def test_weights_are_due_after_every_so_many_epochs(every: int, epochs: list[int], driven: list[int]) -> None:
    """Epochs may pass between two passes: the next newest checkpoint is driven then."""
    passes, results, found = Passes(a_run(everyEpochs=every)), list[ObservedDrive](), list[int]()
    for epoch in epochs:
        plan = passes.look(epoch, drives=tuple(results))
        if plan.tries:
            found.append(job_of(plan).epoch)
            results.append(a_result(len(results) + 1, epoch))
            number = len(results)
            passes.look(epoch, drives=tuple(results), drivers=(a_driver(number, phase="Succeeded", epoch=epoch),))
    assert found == driven


def test_a_result_stands_in_status_with_both_rules_of_success_and_the_best_so_far() -> None:
    passes = Passes(a_run())
    passes.look(1)
    plan = passes.look(1, drivers=(a_driver(phase="Succeeded"),), drives=(a_result(),))
    loop = passes.status["closedLoop"]
    assert {key: loop[key] for key in ("epoch", "drivingScore", "routeCompletion", "success", "interventions")} == {
        "epoch": 1, "drivingScore": "70", "routeCompletion": "90", "interventions": 1,
        "success": {"wholeRoute": "50", "bench2Drive": "25"},
    }  # fmt: skip
    assert loop["infractionsPerKm"] == {"red_light": "0.5"} and loop["uri"].startswith(
        f"s3://lead/{PREFIX}closed_loop/"
    )
    assert loop["best"] == {"epoch": 1, "score": "70", "uri": loop["uri"]}
    assert passes.status["display"]["closedLoop"] == "70% (epoch 1)"
    assert passes.condition[0] == "True" and "no collision, no red light" in passes.condition[2]
    assert [note.reason for note in plan.events] == ["ClosedLoopDone"]


@pytest.mark.parametrize(("score", "status", "reason"), [(66, "True", "Driven"), (64, "False", "Regression")])
def test_a_drop_below_the_best_by_more_than_max_drop_is_a_regression(score: float, status: str, reason: str) -> None:
    passes = Passes(a_run(regression={"maxDrop": 5}))
    first = a_result(1, 1, 70.0)
    passes.look(1)
    passes.look(1, drivers=(a_driver(1, phase="Succeeded"),), drives=(first,))
    passes.look(2, drives=(first,))
    drives = (first, a_result(2, 2, score))
    plan = passes.look(2, drivers=(a_driver(2, phase="Succeeded", epoch=2),), drives=drives)
    assert passes.condition[:2] == (status, reason)
    assert ("ClosedLoopRegression" in [note.reason for note in plan.events]) == (reason == "Regression")
    assert passes.status["closedLoop"]["best"]["epoch"] == 1 and passes.status["phase"] == "Running"


FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    "killed": ({"phase": "Failed", "container": "simulate", "exit_code": 137, "reason": "OOMKilled"}, "limits.memory"),
    "hangs": ({"phase": "Failed", "container": "simulate", "reason": "DeadlineExceeded"}, "timeoutSeconds (600 s)"),
    "garbage": (
        {"phase": "Failed", "exit_code": 65, "message": "result.json is no result file"},
        "could not be published (exit code 65): result.json is no result file",
    ),
    "no weights": (
        {"phase": "Failed", "container": "fetch", "exit_code": 65, "message": "was removed since"},
        "could not be fetched (exit code 65): was removed since",
    ),
    "command": (
        {"phase": "Failed", "container": "simulate", "exit_code": 1, "message": "no \x1b[31mvulkan\x1b[0m device"},
        "the command failed (exit code 1): no \\x1b[31mvulkan",
    ),
    "node lost": ({"node_ready": False, "node_not_ready_since": NOW - timedelta(hours=1)}, "was not ready for 60 s"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_two_failures_are_a_condition_and_training_does_not_notice(case: str) -> None:
    pod, text = FAILURES[case]
    passes, alone = Passes(a_run()), Passes(a_training_run(nodes=1, stages=[{"name": "train", "epochs": 40}]))
    plan = passes.fail_twice(**pod)
    assert passes.condition[:2] == ("False", "Failed") and text in passes.condition[2]
    assert "ClosedLoopFailed" in [note.reason for note in plan.events]
    assert pods_in(passes.look(1, s=300)) == []  # not a third time
    for _ in range(5):
        alone.look(1)
    kept = ("phase", "reason", "restarts", "stages", "pods", "nodes")
    assert {key: passes.status.get(key) for key in kept} == {key: alone.status.get(key) for key in kept}
    assert pods_in(passes.look(2)) == ["night-drive-closed-loop-3"]  # the next weights have two tries of their own


@pytest.mark.parametrize("reason", ["ErrImageNeverPull", "ImagePullBackOff"])
def test_a_missing_image_is_named_at_once_and_given_up_within_a_bound(reason: str) -> None:
    passes = Passes(a_run())
    passes.look(1)
    waits = {"phase": "Pending", "started_at": None, "ready": False, "container": "simulate", "waiting_reason": reason,
             "waiting_message": 'Container image "registry.example/carla:1" is not present', "node": "n"}  # fmt: skip
    passes.look(1, drivers=(a_driver(**waits),))
    assert passes.condition[:2] == ("Unknown", reason) and "registry.example/carla:1" in passes.condition[2]
    assert "closedLoop.image" in passes.condition[2]
    plan = passes.look(1, s=301, drivers=(a_driver(**waits),))
    assert passes.drive["phase"] == "Retrying" and [pod.name for pod in plan.deletes] == ["night-drive-closed-loop-1"]
    passes.look(1, s=30)
    again = {**waits, "created_at": NOW + timedelta(seconds=passes.after_s)}
    passes.look(1, drivers=(a_driver(2, **again),))
    passes.look(1, s=301, drivers=(a_driver(2, **again),))
    assert passes.condition[:2] == ("False", "Failed") and reason in passes.condition[2]


def test_a_second_attempt_waits_until_the_first_ones_pod_is_gone() -> None:
    passes = Passes(a_run())
    passes.look(1)
    lost = a_driver(node_ready=False, node_not_ready_since=NOW - timedelta(hours=1))
    plan = passes.look(1, drivers=(lost,))
    assert [(pod.name, pod.grace_period_s) for pod in plan.deletes] == [("night-drive-closed-loop-1", 0)]
    assert pods_in(passes.look(1, s=60, drivers=(replace(lost, deleting=True),))) == []
    assert pods_in(passes.look(1, s=60)) == ["night-drive-closed-loop-2"]


def test_a_late_result_of_an_earlier_attempt_replaces_nothing() -> None:
    passes = Passes(a_run())
    passes.look(1)
    passes.look(1, drivers=(a_driver(phase="Failed", container="simulate", exit_code=1),))
    passes.look(2, s=30)
    assert passes.drive["attempt"] == 2 and passes.drive["epoch"] == 2
    late = a_result(1, 1, 99.0)
    passes.look(2, drivers=(a_driver(2, epoch=2),), drives=(late,))
    assert passes.drive["phase"] == "Driving"
    newest = a_result(2, 2, 50.0)
    passes.look(2, drivers=(a_driver(2, epoch=2, phase="Succeeded"),), drives=(late, newest))
    assert passes.status["closedLoop"]["drivingScore"] == "50" and passes.status["closedLoop"]["attempt"] == 2


def test_a_result_of_an_attempt_that_was_never_started_counts_for_nothing() -> None:
    passes = Passes(a_run())
    passes.look(1)
    passes.look(1, drivers=(a_driver(),), drives=(a_result(7, 1, 100.0),))
    assert passes.drive["phase"] == "Driving" and "drivingScore" not in passes.status["closedLoop"]


def test_a_pod_that_the_api_server_refuses_is_a_failed_attempt_and_no_error_of_the_run() -> None:
    passes = Passes(a_run())
    passes.look(1)
    plan = passes.look(1, refused={"night-drive-closed-loop-1": "exceeded quota: gpus"})
    assert passes.drive["phase"] == "Retrying" and passes.status["phase"] == "Running"
    assert "exceeded quota: gpus" in passes.condition[2] and plan.creates == ()


def test_after_a_crash_behind_the_claim_the_same_pod_is_asked_for() -> None:
    passes = Passes(a_run())
    first = passes.look(1)
    again = passes.look(1)
    assert pods_in(again) == pods_in(first) and not again.claim_attempt
    passes.look(1, drivers=(a_driver(),))
    plan = passes.look(1)  # it was there, and is gone
    assert passes.drive["phase"] == "Retrying" and "was deleted" in passes.condition[2] and pods_in(plan) == []


def test_each_new_value_of_the_annotation_drives_once() -> None:
    passes = Passes(replace(a_run(everyEpochs=0), drive_request="first"))
    plan = passes.look(3)
    assert job_of(plan).request == "first" and job_of(plan).epoch == 3
    result = a_result(epoch=3, requested="first")
    done = a_driver(phase="Succeeded", epoch=3)
    passes.look(3, drivers=(done,), drives=(result,))
    assert passes.status["closedLoop"]["requested"] == "first"
    assert pods_in(passes.look(4, drives=(result,))) == []
    passes.run = replace(passes.run, drive_request="second")
    assert job_of(passes.look(4, drives=(result,))).epoch == 4


def test_an_annotation_without_a_simulator_is_answered() -> None:
    passes = Passes(replace(a_training_run(nodes=1), drive_request="now"))
    plan = passes.look(1)
    assert passes.condition[:2] == ("False", "NotConfigured") and "add one" in passes.condition[2]
    assert pods_in(plan) == [] and "closedLoop" not in passes.status


def test_a_run_without_a_closed_loop_plans_what_it_planned_before() -> None:
    passes = Passes(a_training_run(nodes=1))
    plan = passes.look(1)
    assert plan.tries == () and "closedLoop" not in passes.status and passes.condition == ("", "", "")


def test_a_suspension_stops_the_pod_and_counts_no_try() -> None:
    passes = Passes(a_run())
    passes.look(1)
    passes.run = replace(passes.run, suspend=True)
    plan = passes.look(1, drivers=(a_driver(),))
    assert "night-drive-closed-loop-1" in [pod.name for pod in plan.deletes] and passes.drive["phase"] == "Stopped"
    assert pods_in(passes.look(1, pods=())) == []
    passes.run = replace(passes.run, suspend=False)
    plan = passes.look(1)
    assert pods_in(plan) == ["night-drive-closed-loop-2"] and passes.drive["tries"] == 1


def ended(passes: Passes, epochs: int = 2) -> RunEnd:
    """Ends the run while its first pod drives; returns the recorded end."""
    passes.look(1)
    driver = a_driver()
    passes.look(epochs, pods=(a_pod(0, phase="Succeeded"),), drivers=(driver,))
    plan = passes.look(epochs, pods=(a_pod(0, phase="Succeeded"),), drivers=(driver,))
    assert passes.status["phase"] == "Succeeded" and "night-drive-closed-loop-1" not in [p.name for p in plan.deletes]
    return RunEnd(
        phase="Succeeded", reason=passes.status["reason"], message="", ended_at=passes.status["completionTime"]
    )


def test_training_succeeds_while_one_drives_and_its_result_comes_later() -> None:
    passes = Passes(a_run(epochs=2))
    end = ended(passes)
    passes.look(2, pods=(), drivers=(a_driver(),), ended=end)
    assert passes.condition[1] == "Driving"
    done = a_driver(phase="Succeeded")
    plan = passes.look(2, pods=(), drivers=(done,), drives=(a_result(),), ended=end)
    assert passes.status["closedLoop"]["drivingScore"] == "70" and passes.status["phase"] == "Succeeded"
    assert "ClosedLoopDone" in [note.reason for note in plan.events]
    assert pods_in(plan) == ["night-drive-closed-loop-2"] and job_of(plan).epoch == 2  # the last weights, after the end
    assert plan.claim_attempt


def test_a_run_is_deleted_by_its_time_to_live_when_nothing_drives_any_more() -> None:
    passes = Passes(replace(a_run(epochs=2), ttl_after_finished_s=10))
    end = ended(passes)
    first, second = a_result(1, 1), a_result(2, 2)
    assert not passes.look(2, s=60, pods=(), drivers=(a_driver(),), ended=end).delete_self
    passes.look(2, pods=(), drivers=(a_driver(phase="Succeeded"),), drives=(first,), ended=end)
    driver = a_driver(2, epoch=2)
    assert not passes.look(2, pods=(), drivers=(driver,), ended=end).delete_self
    last = passes.look(2, pods=(), drivers=(replace(driver, phase="Succeeded"),), drives=(first, second), ended=end)
    assert last.delete_self


def test_an_erased_status_drives_nothing_twice() -> None:
    passes = Passes(replace(a_run(), drive_request="word"))
    results = (a_result(1, 3, 80.0), a_result(4, 5, 60.0, requested="word"))
    plan = passes.look(5, drives=results)
    assert pods_in(plan) == [] and passes.drive["attempt"] == 4
    assert passes.status["closedLoop"]["best"]["epoch"] == 3
    assert pods_in(passes.look(6, drives=results)) == ["night-drive-closed-loop-5"]


def test_while_the_bucket_is_not_read_an_erased_status_starts_nothing() -> None:
    assert pods_in(Passes(a_run()).look(5, drives_read=False)) == []


def test_an_erased_status_takes_the_pod_that_drives_for_its_own() -> None:
    passes = Passes(a_run())
    plan = passes.look(5, drivers=(a_driver(3, epoch=4),))
    assert pods_in(plan) == [] and plan.deletes == ()
    assert (passes.drive["attempt"], passes.drive["epoch"], passes.drive["phase"]) == (3, 4, "Driving")


@pytest.mark.parametrize(
    ("loop", "field", "remedy"),
    [
        ({}, "spec.closedLoop.image is 'registry.example/carla:1'", "policy.allowedImages"),
        (
            {"resources": {"limits": {"smarter-devices/fuse": 1}}},
            "spec.closedLoop.resources",
            "policy.allowedResources",
        ),
        ({"resources": {"limits": {"nvidia.com/gpu": 17}}}, "devices of spec.closedLoop.resources", "maxGpusPerPod"),
        ({"routes": {"prefix": "weights/team-b/routes"}}, "spec.closedLoop.routes.prefix", "storage.profiles.default"),
        ({"routes": {"prefix": "datasets/team-a"}}, "spec.closedLoop.routes.prefix", "storage.profiles.default"),
        ({"routes": {"prefix": "weights/team-a-b"}}, "spec.closedLoop.routes.prefix", "storage.profiles.default"),
    ],
)
def test_what_the_policy_does_not_allow_is_not_driven_and_holds_up_no_training(
    loop: dict[str, Any], field: str, remedy: str
) -> None:
    profile = replace(SETTINGS.storage_profiles["default"], shared=("datasets/common/",))
    closed = Settings(trainer_image="t", storage_profiles={"default": profile}, run_namespaces=("team-a",))
    passes = Passes(a_run(**loop), closed)
    plan = passes.look(1)
    assert pods_in(plan) == [] and passes.condition[:2] == ("False", "NotAllowed")
    assert field in passes.condition[2] and remedy in passes.condition[2]
    assert passes.status["phase"] == "Running"


def test_routes_of_the_namespace_are_fetched_by_the_pod() -> None:
    passes = Passes(a_run(routes={"prefix": "weights/team-a/routes/"}))
    assert job_of(passes.look(1)).routes_prefix == "weights/team-a/routes"


def test_an_idle_pass_changes_nothing() -> None:
    passes = Passes(a_run())
    passes.look(1)
    driver = a_driver()
    before = passes.look(1, drivers=(driver,)).status
    plan = passes.look(1, drivers=(driver,))
    assert plan.status == before and not plan.acts
