"""A live run through all that befalls its pods, its operator, its store and its status: it goes on where it was."""

import json
from pathlib import Path
from typing import Any

import pytest

from lead_testing.installed import Installed, helm, upload_tree
from lead_testing.live_runs import epoch_of, stop_a_rank
from lead_testing.manifests import a_dataset_cache, a_training_run

ERASE = '[{"op":"remove","path":"/status"}]'


@pytest.fixture(scope="module")
def towns(installed: Installed, lead_tree: Path) -> str:
    """The name of a small cache that is Ready."""
    with installed.store() as store:
        upload_tree(store, lead_tree / "data/ConstructionObstacle", "datasets/towns/data/ConstructionObstacle")
    installed.apply(a_dataset_cache("towns", "datasets/towns"))
    installed.wait_for_phase("datasetcache", "towns", "Ready")
    return "towns"


@pytest.fixture(scope="module")
def guest(installed: Installed, towns: str) -> str:
    """The name of a run of two pods that trains on and on."""
    stages = [{"name": "pretrain", "epochs": 100_000}]
    installed.apply_anew(a_training_run("guest", towns, stages=stages, gracePeriodSeconds=10))
    running_pods(installed, "guest")
    total = installed.status("trainingrun", "guest").get("restarts", {}).get("total", 0)
    assert (total, attempt_of(installed, "guest")) == (0, 1)
    return "guest"


def test_a_helm_upgrade_restarts_no_trainer_and_an_evicted_pod_costs_no_program_restart(
    installed: Installed, images: dict[str, str], guest: str
) -> None:
    before, began = running_pods(installed, guest), installed.status("trainingrun", guest)
    attempt, restarts = attempt_of(installed, guest), began.get("restarts", {})
    helm(installed, "upgrade", images, "operator.logLevel=DEBUG")
    epoch = epoch_of(installed, guest)
    installed.wait_for("an epoch after the upgrade", lambda: epoch_of(installed, guest) > epoch, deadline_s=600)
    assert uids(running_pods(installed, guest)) == uids(before)
    status = installed.status("trainingrun", guest)
    assert (status["restarts"]["total"], attempt_of(installed, guest)) == (restarts.get("total", 0), attempt)

    victim = before[1]["metadata"]["name"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": victim}}
    path = f"/api/v1/namespaces/{installed.namespace}/pods/{victim}/eviction"
    done = installed.run("kubectl", "create", "--raw", path, "-f", "-", stdin=json.dumps(body))
    assert done.returncode == 0, done.stderr
    installed.wait_for("another attempt", lambda: attempt_of(installed, guest) == attempt + 1)
    epoch = epoch_of(installed, guest)
    installed.wait_for("an epoch after the eviction", lambda: epoch_of(installed, guest) > epoch, deadline_s=600)
    after = installed.status("trainingrun", guest)["restarts"]
    assert after["program"] == restarts.get("program", 0)
    assert after["total"] == restarts.get("total", 0) + 1


def test_leader_store_and_status_lost_at_once_restart_no_trainer(installed: Installed, guest: str) -> None:
    installed.kubectl("scale", "deployment/lead-operator", "--replicas=2")
    installed.kubectl("rollout", "status", "deployment/lead-operator", "--timeout=120s")
    before, attempt, leader = uids(running_pods(installed, guest)), attempt_of(installed, guest), holder(installed)
    epoch = epoch_of(installed, guest)
    installed.kubectl("delete", "pod", leader, "--grace-period=0", "--force")
    installed.kubectl("delete", "pod", "lead-minio-0", "--grace-period=1", "--wait=false")
    installed.kubectl("patch", "trun", guest, "--subresource=status", "--type=json", "-p", ERASE)
    installed.wait_for("the other to lead", lambda: holder(installed) not in ("", leader))
    installed.wait_for("an epoch after it", lambda: epoch_of(installed, guest) > epoch, deadline_s=300)
    assert uids(running_pods(installed, guest)) == before
    assert attempt_of(installed, guest) == attempt


def test_a_rank_that_stands_still_is_replaced_with_its_group(installed: Installed, guest: str) -> None:
    attempt, policy = attempt_of(installed, guest), '{"spec":{"failurePolicy":{"hangTimeoutSeconds":%d}}}'
    try:
        installed.kubectl("patch", "trun", guest, "--type=merge", "-p", policy % 45)
        stop_a_rank(installed, guest, rank=1)
        installed.wait_for("another attempt", lambda: attempt_of(installed, guest) == attempt + 1)
    finally:
        installed.kubectl("patch", "trun", guest, "--type=merge", "-p", policy % 1800)
    assert installed.status("trainingrun", guest)["lastFailure"]["reason"] == "Hung"
    epoch = epoch_of(installed, guest)
    installed.wait_for("an epoch after it", lambda: epoch_of(installed, guest) > epoch, deadline_s=300)
    assert attempt_of(installed, guest) == attempt + 1


def test_a_run_that_is_deleted_while_no_operator_lives_takes_its_children_along(
    installed: Installed, guest: str
) -> None:
    mine = f"lead.dev/owner-uid={installed.get('trainingrun', guest)['metadata']['uid']}"
    assert installed.items("pods,services", mine)
    try:
        installed.kubectl("scale", "deployment/lead-operator", "--replicas=0")
        operators = "app.kubernetes.io/component=operator"
        installed.wait_for("no operator", lambda: not installed.items("pods", operators))
        installed.kubectl("delete", "trainingrun", guest, "--wait", "--timeout=120s")
        installed.wait_for("no child of it", lambda: not installed.items("pods,services", mine))
    finally:
        installed.kubectl("scale", "deployment/lead-operator", "--replicas=1")
        installed.kubectl("rollout", "status", "deployment/lead-operator", "--timeout=120s")


def holder(installed: Installed) -> str:
    """Returns the operator pod that leads."""
    return str(installed.get("lease", "lead-operator")["spec"].get("holderIdentity", ""))


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
