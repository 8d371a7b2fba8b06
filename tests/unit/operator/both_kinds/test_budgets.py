"""Each budget ends exactly what it promises to end, and nothing else spends it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from lead_operator import metrics
from lead_operator.controllers.apply import Applier
from lead_operator.decisions.dataset_cache.plan import MAX_INFRASTRUCTURE_FAILURES, MAX_REBUILDS, decide_dataset_cache
from lead_operator.decisions.failure_policy import Failure, pause_s
from lead_operator.decisions.observed import ObservedBuild, ObservedInstance, ObservedPod, ObservedRun
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.decisions.training_run.restarts import NO_CHECKPOINT, Backoff, Restarts, apply_restart_policy
from lead_operator.kube.api_errors import Conflict
from lead_operator.kube.client import KubeClient
from lead_operator.kube.event_recorder import EventRecorder
from lead_operator.kube.informers import Informers
from lead_operator.kube.kinds import TRAINING_RUN, KubernetesObject
from lead_operator.resources.dataset_cache import DatasetCache
from lead_operator.resources.stored import Stored, read_stored
from lead_protocol.exit_codes import ExitClass
from lead_testing.makers import (
    NOW,
    SETTINGS,
    a_dataset_cache,
    a_failed_pod,
    a_pod,
    a_ready_cache,
    a_run_body,
    a_training_run,
)

POLICY = replace(a_training_run().failure_policy, max_restarts=3, max_infra_restarts=4, no_progress_limit=2)
PROGRAM, INFRA, STOPPED = ExitClass.PROGRAM_ERROR, ExitClass.INFRASTRUCTURE, ExitClass.STOPPED


def ends(*failures: tuple[ExitClass, int]) -> tuple[int, str, Restarts, Backoff]:
    """Returns after how many failures (class, step of the newest checkpoint) a run gave up, why, and its accounts."""
    restarts, backoff = Restarts(), Backoff()
    for number, (exit_class, step) in enumerate(failures, 1):
        verdict = apply_restart_policy(restarts, backoff, Failure(exit_class, "Boom", "it broke", 1), POLICY, step)
        if verdict.give_up:
            return number, verdict.give_up, verdict.restarts, verdict.backoff
        restarts, backoff = verdict.restarts, verdict.backoff
    return 0, "", restarts, backoff


@pytest.mark.parametrize(
    ("failures", "number", "reason"),
    [
        ([(PROGRAM, NO_CHECKPOINT)] * 9, 4, "MaxRestarts"),
        ([(INFRA, NO_CHECKPOINT)] * 9, 5, "MaxInfraRestarts"),
        ([(INFRA, 10)] * 9, 5, "MaxInfraRestarts"),
        ([(PROGRAM, 10)] * 9, 2, "NoProgress"),
        ([(PROGRAM, step) for step in (10, 20, 30, 40)], 4, "MaxRestarts"),
        ([(PROGRAM, 10), (INFRA, 10), (PROGRAM, 10)], 3, "NoProgress"),
        ([(PROGRAM, 10), (PROGRAM, 20), (PROGRAM, 30), (INFRA, 30), (INFRA, 30)], 0, ""),
        ([(STOPPED, 10)] * 99, 0, ""),
        ([(ExitClass.USER_ERROR, 10)], 1, "Boom"),
    ],
)
def test_a_run_gives_up_at_the_right_failure(failures: list[tuple[ExitClass, int]], number: int, reason: str) -> None:
    assert ends(*failures)[:2] == (number, reason)


def test_each_failure_is_booked_where_it_belongs() -> None:
    _, _, restarts, backoff = ends((PROGRAM, 10), (INFRA, 20), (STOPPED, 20), (INFRA, 20))
    assert (restarts.program, restarts.infrastructure, restarts.voluntary, restarts.total) == (1, 2, 1, 4)
    assert (backoff.at_step, backoff.errors, backoff.ends) == (20, 0, 3)


def test_the_pause_doubles_without_a_newer_checkpoint_and_never_passes_a_minute() -> None:
    assert [pause_s(n) for n in range(10)] == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60]


def a_build_pod(attempt: int, **fields: Any) -> ObservedPod:
    return a_pod(0, name=f"towns-build-g1-a{attempt}-0", role="build", stage="", attempt=attempt, **fields)


def build_until_failed(cache: DatasetCache, **end: Any) -> tuple[int, str]:
    """Returns how many attempts a build of one share made whose pods all end the same way, and why it gave up."""
    status = decide_dataset_cache(cache, ObservedBuild(now=NOW), SETTINGS).status
    for hour in range(1, 200):
        attempt: int = status["build"]["workers"][0]["attempt"]
        if status["phase"] == "Failed":
            return attempt, status["reason"]
        seen = ObservedBuild(now=NOW + timedelta(hours=hour), previous=status, pods=(a_build_pod(attempt, **end),))
        status = decide_dataset_cache(cache, seen, SETTINGS).status
    return 0, ""


@pytest.mark.parametrize(
    ("end", "attempts", "reason"),
    [
        ({"phase": "Failed", "exit_code": 1}, 4, "MaxRetries"),
        ({"phase": "Failed", "exit_code": 65}, 1, "BadData"),
        ({"phase": "Failed", "exit_code": 80}, MAX_INFRASTRUCTURE_FAILURES + 1, "MaxInfraFailures"),
        ({"phase": "Succeeded"}, MAX_REBUILDS + 1, "SourceChanges"),
    ],
)
def test_a_build_gives_up_at_the_right_failure(end: dict[str, Any], attempts: int, reason: str) -> None:
    cache = a_dataset_cache(build={"parallelism": 1, "maxRetries": 3})
    assert build_until_failed(cache, **end) == (attempts, reason)


def test_a_share_waits_its_pause_and_its_old_pod_before_the_next_attempt() -> None:
    cache = a_dataset_cache(build={"parallelism": 1})
    status = decide_dataset_cache(cache, ObservedBuild(now=NOW), SETTINGS).status
    worker = {**status["build"]["workers"][0], "errors": 0, "infrastructureFailures": 4}
    status = {**status, "build": {**status["build"], "workers": [worker]}}
    ended = (a_build_pod(1, phase="Failed", exit_code=80),)
    for after_s, pods, made in [(0, ended, 0), (7, ended, 0), (8, ended, 1), (99, (a_build_pod(1, deleting=True),), 0)]:
        seen = ObservedBuild(now=NOW + timedelta(seconds=after_s), previous=status, pods=pods)
        plan = decide_dataset_cache(cache, seen, SETTINGS)
        assert len(plan.creates) == made, (after_s, plan)
        status = plan.status if not made else status
    assert status["build"]["workers"][0]["endedAttempt"] == 1


def test_a_new_stage_does_not_inherit_the_last_ones_failures_in_a_row() -> None:
    run = a_training_run(stages=[{"name": "train", "epochs": 1}, {"name": "tune", "epochs": 1}])
    held = {"endedAttempt": 3, "failedAttempt": 2, "atStep": NO_CHECKPOINT, "errorsAtStep": 2, "endsAtStep": 2}
    before = {
        "stages": [
            {"name": "train", "seed": 0, "phase": "Succeeded", "attempt": 3, "restartState": held},
            {"name": "tune", "seed": 0, "phase": "Running", "attempt": 1, "restartState": {"created": True}},
        ],
        "restarts": {"program": 2},
        "lastFailure": {"stage": "train", "seed": 0, "attempt": 2},
    }
    pods = tuple(a_failed_pod(rank, stage="tune") for rank in (0, 1))
    observed = ObservedRun(now=NOW, pods=pods, caches=(a_ready_cache(),), service_exists=True, previous=before)
    after = decide_training_run(run, observed, SETTINGS).status
    tuned = after["stages"][1]["restartState"]
    assert (after["restarts"]["program"], tuned["errorsAtStep"], tuned["endsAtStep"]) == (3, 1, 1)


def test_restarts_survive_an_erased_status_without_spending_a_budget() -> None:
    run = a_training_run(stages=[{"name": "train", "epochs": 1}, {"name": "tune", "epochs": 1}])
    bucket = (ObservedInstance("train", 0, highest_attempt=3), ObservedInstance("tune", 0))
    seen = ObservedRun(now=NOW, pods=tuple(a_pod(r, attempt=3) for r in (0, 1)), caches=(a_ready_cache(),),
                       service_exists=True, instances=bucket)  # fmt: skip
    rebuilt = decide_training_run(run, seen, SETTINGS).status
    assert rebuilt["restarts"] == {"total": 2, "program": 0, "infrastructure": 0, "voluntary": 2}
    later = decide_training_run(run, replace(seen, previous=rebuilt), SETTINGS).status
    assert later["restarts"] == rebuilt["restarts"]


async def test_a_restart_counts_when_the_server_has_taken_it_and_not_before() -> None:
    class Server:
        refuses = True

        async def apply_status(self, kind: object, stored: Stored, status: dict[str, Any]) -> KubernetesObject:
            if self.refuses:
                raise Conflict(409, "Conflict", "the object has been modified")
            body = a_run_body()
            return {**body, "metadata": {**body["metadata"], "resourceVersion": "8"}, "status": status}

    def counted() -> float:
        return metrics.REGISTRY.get_sample_value("lead_restarts_total", {"class": "program"}) or 0.0

    server, run, before = Server(), a_run_body(), counted()
    run["metadata"]["resourceVersion"] = "7"
    run["status"] = {"restarts": {"program": 1}}
    client = cast(KubeClient, server)
    informers = Informers(client, ("team-a",), SETTINGS, lambda key: None, lambda key: None)
    applier, plan = Applier(client, cast(EventRecorder, server), informers), Plan({"restarts": {"program": 2}}, True)
    for _ in range(3):
        with pytest.raises(Conflict):
            await applier.apply(TRAINING_RUN, read_stored(run, TRAINING_RUN.kind), plan)
    assert counted() == before
    server.refuses = False
    await applier.apply(TRAINING_RUN, read_stored(run, TRAINING_RUN.kind), plan)
    assert counted() == before + 1
