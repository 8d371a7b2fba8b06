"""etcd, API server or clock misbehave under a run that trains: no trainer is restarted, the status is true again."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lead_testing.api_bench import Bench
from lead_testing.kube_faults.kubelet import Kubelet
from lead_testing.kube_faults.truth import Truth
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import CLOCK, wait_for

ETCD_KILLS = int(os.environ.get("LEAD_TEST_ETCD_KILLS", "5"))
HOUR_S, DAY_S = 3600, 86400


@pytest.fixture
def training(bench: Bench) -> Iterator[Bench]:
    """A bench whose run will train until it is let go; the test starts the operator."""
    bench.driver.script.held.add("pretrain")
    deadlines = {"activeDeadlineSeconds": 1800, "failurePolicy": {"hangTimeoutSeconds": 1800}}
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", **deadlines))
    yield bench


def test_killed_etcds_and_an_absent_api_server_restart_no_trainer(training: Bench) -> None:
    with Truth(training.plane.kubeconfig, training.namespace) as truth, Kubelet(training.operator):
        training.wait_phase("tr", "drive", "Running")
        before = {p["metadata"]["uid"] for p in training.pods()}
        for _ in range(ETCD_KILLS):
            training.plane.kill_etcd()
            training.plane.start_etcd()
            wait_for("an answer", lambda: training.status("tr", "drive"))
        training.plane.stop_apiserver()
        training.plane.start_apiserver()
        wait_for("the operator", lambda: training.operator.metric("lead_leader") == 1)
        assert training.status("tr", "drive")["phase"] == "Running"
        assert {p["metadata"]["uid"] for p in training.pods()} == before
        training.driver.script.held.clear()
        done = training.wait_phase("tr", "drive", "Succeeded", "Failed")
    assert (done["phase"], done["restarts"]["total"], truth.violations) == ("Succeeded", 0, [])


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S, DAY_S, -DAY_S])
def test_a_clock_that_jumps_ends_nothing(training: Bench, tmp_path: Path, jump_s: int) -> None:
    clock = tmp_path / "clock"
    clock.write_text("0")
    with Truth(training.plane.kubeconfig, training.namespace) as truth:
        training.operator.start(**{CLOCK: str(clock)})
        training.wait_phase("tr", "drive", "Running")
        clock.write_text(str(jump_s))
        looked = training.operator.metric("lead_reconcile_duration_seconds_count", kind="TrainingRun")
        wait_for(
            "looks by the new time",
            lambda: training.operator.metric("lead_reconcile_duration_seconds_count", kind="TrainingRun") >= looked + 3,
        )
        assert training.status("tr", "drive")["phase"] == "Running"
        training.operator.kill()
        training.operator.start(**{CLOCK: str(clock)})  # a new process has never seen the right time
        training.driver.script.held.clear()
        done = training.wait_phase("tr", "drive", "Succeeded", "Failed")
    assert (done["phase"], done["restarts"]["total"], truth.violations) == ("Succeeded", 0, [])
    assert done["startTime"] <= done["completionTime"]
