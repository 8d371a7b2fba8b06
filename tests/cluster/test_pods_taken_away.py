"""Whoever takes a training pod away, and whoever upgrades the chart: a live run goes on and spends no budget."""

import json
from typing import Any

import pytest

from lead_testing import shared_dir
from lead_testing.installed import Installed, helm, upload_tree
from lead_testing.manifests import a_dataset_cache, a_training_run


@pytest.fixture(scope="module")
def towns(installed: Installed) -> str:
    """The name of a small cache that is Ready."""
    with installed.store() as store:
        tree = shared_dir() / "golden/lead_data/carla_leaderboard2/data/ConstructionObstacle"
        upload_tree(store, tree, "datasets/towns/data/ConstructionObstacle")
    installed.apply(a_dataset_cache("towns", "datasets/towns"))
    installed.wait_for_phase("datasetcache", "towns", "Ready")
    return "towns"


def test_an_evicted_pod_costs_no_program_restart(installed: Installed, towns: str) -> None:
    installed.apply(a_training_run("evicted", towns, stages=[{"name": "pretrain", "epochs": 3}]))
    victim = running_pods(installed, "evicted")[1]["metadata"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": victim["name"]}}
    path = f"/api/v1/namespaces/{installed.namespace}/pods/{victim['name']}/eviction"
    done = installed.run("kubectl", "create", "--raw", path, "-f", "-", stdin=json.dumps(body))
    assert done.returncode == 0, done.stderr
    status = installed.wait_for_phase("trainingrun", "evicted", "Succeeded", deadline_s=600)
    assert status["restarts"]["program"] == 0
    assert status["stages"][0]["attempt"] == 2


def test_a_helm_upgrade_restarts_no_trainer(installed: Installed, images: dict[str, str], towns: str) -> None:
    installed.apply(a_training_run("upgraded", towns, stages=[{"name": "pretrain", "epochs": 4}]))
    before = {pod["metadata"]["uid"] for pod in running_pods(installed, "upgraded")}
    helm(installed, "upgrade", images, "operator.logLevel=DEBUG")
    status = installed.wait_for_phase("trainingrun", "upgraded", "Succeeded", deadline_s=600)
    assert (status["restarts"]["total"], status["stages"][0]["attempt"]) == (0, 1)
    kept = {pod["metadata"]["uid"] for pod in installed.items("pods", "lead.dev/run=upgraded")}
    assert kept <= before


def running_pods(installed: Installed, run: str) -> list[dict[str, Any]]:
    """Waits until both pods of a run run; returns them by rank."""

    def both() -> list[dict[str, Any]]:
        pods = installed.items("pods", f"lead.dev/run={run}")
        running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        return sorted(running, key=lambda pod: pod["metadata"]["name"]) if len(running) == 2 else []

    found: list[dict[str, Any]] = installed.wait_for(f"two running pods of {run}", both, deadline_s=300)
    return found
