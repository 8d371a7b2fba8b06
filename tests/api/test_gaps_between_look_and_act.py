"""What goes between a look of the operator and the call that comes of it: a run, for the next of its name, a node."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lead_testing.api_bench import Bench, add_node, open_bench, set_node_ready
from lead_testing.kube_faults.plan import Fault, Plan
from lead_testing.kube_faults.truth import Truth
from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.manifests import API_VERSION, a_dataset_cache, a_training_run
from lead_testing.minio_server import MinioServer
from lead_testing.operator_process import wait_for

GAP_S = 3.0  # for so long a call is on its way; what goes meanwhile goes within milliseconds
BUILD_PODS = 2


@contextmanager
def late(
    control_plane: ControlPlane, minio: MinioServer, folder: Path, site: str, *, at: int = 1, times: int = 1
) -> Iterator[Bench]:
    """Opens a bench with an operator whose calls of one kind arrive late, from the `at`-th on so many `times`."""
    plan = Plan("", (Fault("slow", at, site, times=times, seconds=GAP_S),))
    with open_bench(control_plane, minio, folder, plan) as bench:
        bench.operator.start()
        yield bench


def await_gap(bench: Bench) -> None:
    """Waits until the operator has looked and decided, and its call is on its way."""
    assert bench.proxy is not None
    journal = bench.proxy.journal
    wait_for("the late call", lambda: journal.fired, poll_s=0.02)


def arrived(bench: Bench) -> list[int]:
    """Returns what the API server said to the late calls."""
    assert bench.proxy is not None
    return [status for _, _, status, fault in bench.proxy.journal.calls if fault == "slow"]


def answers(bench: Bench, asked: str) -> list[int]:
    """Returns what the API server said to all calls of one kind."""
    assert bench.proxy is not None
    return [status for site, _, status, _ in bench.proxy.journal.calls if site == asked]


def runs_path(bench: Bench) -> str:
    return f"/apis/{API_VERSION}/namespaces/{bench.namespace}/trainingruns"


def test_a_run_that_goes_while_its_attempt_is_claimed_gets_no_pod(
    control_plane: ControlPlane, minio: MinioServer, tmp_path: Path
) -> None:
    with late(control_plane, minio, tmp_path, "patch trainingruns/status") as bench:
        bench.apply(a_dataset_cache("town", "datasets/town"))
        bench.wait_phase("dsc", "town", "Ready")
        bench.apply(a_training_run("drive", "town"))
        await_gap(bench)
        assert not arrived(bench)
        bench.driver.api.call("DELETE", f"{runs_path(bench)}/drive")
        (said,) = wait_for("the answer", lambda: arrived(bench))
        assert said in (404, 409), "a status is written to the very run that was looked at, or to none"
        wait_for("the run to be forgotten", lambda: bench.operator.metric("lead_resources", kind="TrainingRun") == 0)
        wait_for("the cache to be free", lambda: not bench.status("dsc", "town").get("usedBy"))
        assert bench.items("trun") == []
        assert bench.pods() == []
        assert bench.operator.page("healthz") == (200, "ok")


def test_late_pods_of_a_run_that_is_gone_do_not_hold_up_the_next_of_its_name(
    control_plane: ControlPlane, minio: MinioServer, tmp_path: Path
) -> None:
    with (
        late(control_plane, minio, tmp_path, "create pods", at=BUILD_PODS + 1, times=2) as bench,
        Truth(control_plane.kubeconfig, bench.namespace) as truth,
    ):
        run = a_training_run("drive", "town")
        bench.apply(a_dataset_cache("town", "datasets/town"), run)
        await_gap(bench)
        assert not arrived(bench)
        bench.driver.api.call("DELETE", f"{runs_path(bench)}/drive")
        new = bench.driver.api.call("POST", runs_path(bench), run)["metadata"]["uid"]
        wait_for("both pods", lambda: arrived(bench) == [201, 201])
        done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
        assert {owner(pod) for pod in bench.pods()} == {new}
    assert (done["phase"], done["restarts"]["total"], truth.violations) == ("Succeeded", 0, [])


def owner(pod: dict[str, Any]) -> str:
    """Returns the UID by which the garbage collector takes a pod along."""
    (reference,) = pod["metadata"]["ownerReferences"]
    return str(reference["uid"])


def test_a_lost_node_that_goes_before_its_pod_is_forced_costs_one_attempt(
    control_plane: ControlPlane, minio: MinioServer, tmp_path: Path
) -> None:
    with (
        late(control_plane, minio, tmp_path, "delete pods") as bench,
        Truth(control_plane.kubeconfig, bench.namespace) as truth,
    ):
        node = f"{bench.namespace}-b"
        add_node(bench.plane, node)
        bench.driver.script.held.add("pretrain")
        bench.driver.script.nodes[("pretrain", 1, 1)] = node
        run = a_training_run("drive", "town", failurePolicy={"nodeLossSeconds": 1})
        bench.apply(a_dataset_cache("town", "datasets/town"), run)
        bench.wait_phase("trun", "drive", "Running")
        bench.driver.script.dead_nodes.add(node)
        set_node_ready(bench.plane, node, ready=False)
        await_gap(bench)
        bench.driver.api.call("DELETE", f"/api/v1/nodes/{node}")
        pod = f"/api/v1/namespaces/{bench.namespace}/pods/drive-pretrain-s0-a1-1"
        bench.driver.api.call("DELETE", pod, {"gracePeriodSeconds": 0})  # as the collector of pods without a node does
        wait_for("the call for a pod that is gone", lambda: 404 in answers(bench, "delete pods"))
        bench.driver.script.held.clear()
        done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    restarts = done["restarts"]
    assert (done["phase"], restarts["infrastructure"], restarts["total"]) == ("Succeeded", 1, 1)
    assert truth.violations == []
