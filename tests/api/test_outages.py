"""etcd, API server or clocks misbehave under a run that trains: no trainer is restarted, the status is true again."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lead_testing.api_bench import Bench
from lead_testing.figures import record, stay, wait_and_record
from lead_testing.kube_faults.kubelet import Kubelet
from lead_testing.kube_faults.truth import Truth
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import CLOCK, wait_for
from lead_testing.statuses import newest_entry

ETCD_KILLS = int(os.environ.get("LEAD_TEST_ETCD_KILLS", "5"))
AWAY_S = float(os.environ.get("LEAD_TEST_AWAY_S", "0"))  # of the API server; a new one takes some seconds in any case
TEN_MINUTES_S = 600
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
        training.wait_phase("trun", "drive", "Running")
        before = {p["metadata"]["uid"] for p in training.pods()}
        for _ in range(ETCD_KILLS):
            training.plane.kill_etcd()
            training.plane.start_etcd()
            wait_for("an answer", lambda: training.status("trun", "drive"))
            record("etcd_kills", 1)
        training.plane.stop_apiserver()
        the_first_epoch_ends(training)
        stay("the API server away", AWAY_S)
        training.plane.start_apiserver()
        told = lambda: newest_entry(training.status("trun", "drive"))["progress"].get("epoch") == 1  # noqa: E731
        wait_and_record("status_true_s", "what the trainer reported meanwhile to be told", told)
        assert training.status("trun", "drive")["phase"] == "Running"
        assert {p["metadata"]["uid"] for p in training.pods()} == before
        training.driver.script.held.clear()
        done = training.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert (done["phase"], done["restarts"]["total"], truth.violations) == ("Succeeded", 0, [])


def test_an_etcd_restored_to_an_older_revision_begins_no_attempt_twice(training: Bench, tmp_path: Path) -> None:
    training.plane.save_etcd(tmp_path / "etcd")
    with Truth(training.plane.kubeconfig, training.namespace) as truth, Kubelet(training.operator):
        training.wait_phase("trun", "drive", "Running")
        the_first_epoch_ends(training)
        wait_for(
            "its checkpoint", lambda: newest_entry(training.status("trun", "drive"))["checkpoint"].get("epoch") == 1
        )
        training.plane.restore_etcd(tmp_path / "etcd")  # the run is there, and nothing that was ever made for it
        again = lambda: len(training.pods()) == 2 and "-a2-" in str(training.pods())  # noqa: E731
        wait_and_record("restored_s", "the next attempt", again)
        training.driver.script.held.clear()
        done = training.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert (done["phase"], done["stages"][0]["attempt"], truth.violations) == ("Succeeded", 2, [])


def the_first_epoch_ends(bench: Bench) -> None:
    """The trainer commits and reports its first epoch: the bucket has news, the cluster has none."""
    bench.driver.script.held_at = 1
    newest = [pod for pod in bench.driver.seen.values() if pod["metadata"]["labels"].get("lead.dev/rank") == "0"][-1]
    bench.driver.begin_training(newest)


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S, DAY_S, -DAY_S])
def test_a_clock_that_jumps_ends_nothing(training: Bench, tmp_path: Path, jump_s: int) -> None:
    clock = tmp_path / "clock"
    clock.write_text("0")
    with Truth(training.plane.kubeconfig, training.namespace) as truth:
        training.operator.start(**{CLOCK: str(clock)})
        training.wait_phase("trun", "drive", "Running")
        clock.write_text(str(jump_s))
        looked = training.operator.metric("lead_reconcile_duration_seconds_count", kind="TrainingRun")
        wait_for(
            "looks by the new time",
            lambda: training.operator.metric("lead_reconcile_duration_seconds_count", kind="TrainingRun") >= looked + 3,
        )
        assert training.status("trun", "drive")["phase"] == "Running"
        training.operator.kill()
        training.operator.start(**{CLOCK: str(clock)})  # a new process has never seen the right time
        training.driver.script.held.clear()
        done = training.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert (done["phase"], done["restarts"]["total"], truth.violations) == ("Succeeded", 0, [])
    assert done["startTime"] <= done["completionTime"]


@pytest.mark.parametrize("ahead_s", [TEN_MINUTES_S, -TEN_MINUTES_S])
def test_a_trainer_whose_clock_is_wrong_is_neither_hung_nor_late(bench: Bench, ahead_s: int) -> None:
    limits = {"activeDeadlineSeconds": 300, "pendingDeadlineSeconds": 300, "failurePolicy": {"hangTimeoutSeconds": 300}}
    bench.driver.script.clock_ahead_s = ahead_s
    bench.driver.script.held.add("pretrain")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", **limits))
    with Truth(bench.plane.kubeconfig, bench.namespace) as truth:
        bench.wait_phase("trun", "drive", "Running")
        the_first_epoch_ends(bench)
        wait_for("its report", lambda: newest_entry(bench.status("trun", "drive"))["progress"].get("epoch") == 1)
        looked = bench.operator.metric("lead_reconcile_duration_seconds_count", kind="TrainingRun")
        looks = lambda: bench.operator.metric("lead_reconcile_duration_seconds_count", kind="TrainingRun")  # noqa: E731
        wait_for("looks at what it says", lambda: looks() >= looked + 3)
        assert bench.status("trun", "drive")["phase"] == "Running"
        bench.driver.script.held.clear()
        done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert (done["phase"], done["restarts"]["total"], truth.violations) == ("Succeeded", 0, [])
    assert done["startTime"] <= done["completionTime"]
    assert newest_entry(done)["checkpoint"]["epoch"] == 2
