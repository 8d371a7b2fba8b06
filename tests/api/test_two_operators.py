"""Two operators at work at once, by mistake or after a long sleep: nothing is made twice and nothing goes back."""

import os
import time
from pathlib import Path

from lead_testing.api_bench import Bench
from lead_testing.figures import stay, wait_and_record
from lead_testing.kube_faults.truth import Truth
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import OperatorProcess, wait_for
from lead_testing.pod_driver import Exit

FROZEN_S = float(os.environ.get("LEAD_TEST_FROZEN_S", "0"))  # at least; until another leads in any case
STAGES = [{"name": "pretrain", "epochs": 2}, {"name": "posttrain", "epochs": 1, "initFrom": {"stage": "pretrain"}}]


def a_second(bench: Bench, folder: Path) -> OperatorProcess:
    plane, minio = bench.plane, bench.minio
    return OperatorProcess(plane.kubeconfig, folder, bench.namespace, minio.endpoint, bench.namespace, pod="operator-1")


def test_two_operators_without_a_lease_make_nothing_twice(bench: Bench, tmp_path: Path) -> None:
    bench.driver.script.exits[("pretrain", 1, 1)] = Exit(1, "boom")
    with Truth(bench.plane.kubeconfig, bench.namespace) as truth, a_second(bench, tmp_path / "second") as second:
        bench.operator.start()
        second.start(LEAD_RELEASE_NAMESPACE="default")  # a lease of its own: both believe that they lead
        for operator in (bench.operator, second):
            wait_for("both to lead", lambda o=operator: o.metric("lead_leader") == 1)
        bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", stages=STAGES))
        done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert truth.violations == []
    assert (done["phase"], done["restarts"]["program"], done["restarts"]["total"]) == ("Succeeded", 1, 1)
    names = [p["metadata"]["name"] for p in bench.driver.seen.values()]
    assert len(names) == len(set(names)) == 8


def test_a_frozen_leader_that_wakes_up_does_no_harm(bench: Bench, tmp_path: Path) -> None:
    bench.driver.script.held.add("pretrain")
    with Truth(bench.plane.kubeconfig, bench.namespace) as truth, a_second(bench, tmp_path / "second") as second:
        bench.operator.start()
        wait_for("the first to lead", lambda: bench.operator.metric("lead_leader") == 1)
        bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", stages=STAGES))
        bench.wait_phase("trun", "drive", "Running")
        second.start()
        wait_for("the second to have seen the cluster", lambda: second.page("readyz")[0] == 200)
        bench.operator.freeze()
        frozen = time.monotonic()
        wait_and_record("takeover_s", "the second to lead", lambda: second.metric("lead_leader") == 1)
        bench.kubectl("delete", "pod", "drive-pretrain-s0-a1-1", "--grace-period=0", "--force")
        wait_for("the next attempt", lambda: len(bench.pods()) == 2 and "-a2-" in str(bench.pods()))
        stay("the first frozen", FROZEN_S - (time.monotonic() - frozen))
        bench.operator.thaw()
        bench.driver.script.held.clear()
        done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
        wait_for("the first to end: it has lost the lease", lambda: bench.operator.exit_status() == 1)
    assert truth.violations == []
    assert (done["phase"], done["restarts"]["infrastructure"]) == ("Succeeded", 1)


def test_a_replica_that_waits_for_the_lease_ends_when_it_is_asked_to(bench: Bench, tmp_path: Path) -> None:
    bench.operator.start()
    wait_for("the first to lead", lambda: bench.operator.metric("lead_leader") == 1)
    with a_second(bench, tmp_path / "second") as second:
        second.start()
        wait_for("the second to have seen the cluster", lambda: second.page("readyz")[0] == 200)
        assert second.terminate() == 0
    assert bench.operator.terminate() == 0
    assert bench.get("lease", "lead-operator")["spec"].get("holderIdentity", "") == ""
