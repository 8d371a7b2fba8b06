"""Whoever takes a training pod away, and whoever upgrades the chart: a live run goes on and spends no budget."""

import json
from pathlib import Path
from typing import Any

import pytest

from lead_testing.installed import Installed, helm, upload_tree
from lead_testing.live_runs import epoch_of
from lead_testing.manifests import a_dataset_cache, a_training_run


@pytest.fixture(scope="module")
def towns(installed: Installed, lead_tree: Path) -> str:
    """The name of a small cache that is Ready."""
    with installed.store() as store:
        upload_tree(store, lead_tree / "data/ConstructionObstacle", "datasets/towns/data/ConstructionObstacle")
    installed.apply(a_dataset_cache("towns", "datasets/towns"))
    installed.wait_for_phase("datasetcache", "towns", "Ready")
    return "towns"


def test_a_helm_upgrade_restarts_no_trainer_and_an_evicted_pod_costs_no_program_restart(
    installed: Installed, images: dict[str, str], towns: str
) -> None:
    installed.apply(a_training_run("guest", towns, stages=[{"name": "pretrain", "epochs": 1000}]))
    before = running_pods(installed, "guest")
    helm(installed, "upgrade", images, "operator.logLevel=DEBUG")
    epoch = epoch_of(installed, "guest")
    installed.wait_for("an epoch after the upgrade", lambda: epoch_of(installed, "guest") > epoch, deadline_s=600)
    assert uids(running_pods(installed, "guest")) == uids(before)
    status = installed.status("trainingrun", "guest")
    assert (status["restarts"]["total"], status["stages"][0]["attempt"]) == (0, 1)

    victim = before[1]["metadata"]["name"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": victim}}
    path = f"/api/v1/namespaces/{installed.namespace}/pods/{victim}/eviction"
    done = installed.run("kubectl", "create", "--raw", path, "-f", "-", stdin=json.dumps(body))
    assert done.returncode == 0, done.stderr
    installed.wait_for("another attempt", lambda: attempt_of(installed, "guest") == 2)
    epoch = epoch_of(installed, "guest")
    installed.wait_for("an epoch after the eviction", lambda: epoch_of(installed, "guest") > epoch, deadline_s=600)
    restarts = installed.status("trainingrun", "guest")["restarts"]
    assert (restarts["program"], restarts["total"]) == (0, 1)
    installed.kubectl("delete", "trainingrun", "guest", "--wait")


def attempt_of(installed: Installed, run: str) -> int:
    """Returns the attempt of a run's first stage."""
    return int(installed.status("trainingrun", run)["stages"][0]["attempt"])


def uids(pods: list[dict[str, Any]]) -> set[str]:
    """Returns the identities of pods."""
    return {pod["metadata"]["uid"] for pod in pods}


def running_pods(installed: Installed, run: str) -> list[dict[str, Any]]:
    """Waits until both pods of a run run; returns them by rank."""

    def both() -> list[dict[str, Any]]:
        pods = installed.items("pods", f"lead.dev/run={run}")
        running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        return sorted(running, key=lambda pod: pod["metadata"]["name"]) if len(running) == 2 else []

    found: list[dict[str, Any]] = installed.wait_for(f"two running pods of {run}", both, deadline_s=300)
    return found
