"""An older operator and today's, in turn over the same live runs: neither touches a pod of the other's."""

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from lead_testing import PROJECT_ROOT
from lead_testing.api_bench import Bench
from lead_testing.kube_faults.truth import Truth
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import CODE, wait_for
from lead_testing.statuses import newest_entry

# The first of today's format: a spec whose references are objects, a status with numbers, one display object and
# progress in stages alone, and records below control/ that count infrastructure failures and voluntary restarts.
# Today's schema of the CRDs, which an upgrade applies first, takes every status that it writes.
OLDER = "4b82bf1eedd30484ff364ce13d6dab8736796a7b"
STAGES = {"drive": "pretrain", "exp": "big-train"}
EPOCHS = 9


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of the older operator's packages; they read their defaults from the CRDs beside it."""
    try:
        argv = ["git", "-C", str(PROJECT_ROOT), "archive", OLDER, "operator", "crds"]
        done = subprocess.run(argv, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no git, which would bring the operator of an older commit")
    if done.returncode != 0:
        pytest.skip(f"this checkout has no commit {OLDER[:7]} in its history: {done.stderr.decode().strip()}")
    folder: Path = tmp_path_factory.mktemp("older")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return str(folder / "operator")


def test_an_upgrade_and_its_way_back_restart_no_trainer(bench: Bench, older: str) -> None:
    bench.driver.script.held.update(STAGES.values())
    runs = [a_training_run(name, "town", stages=[{"name": s, "epochs": EPOCHS}]) for name, s in STAGES.items()]
    with Truth(bench.plane.kubeconfig, bench.namespace) as truth:
        bench.operator.start(**{CODE: older})
        bench.apply(a_dataset_cache("town", "datasets/town"), *runs)
        for name in STAGES:
            bench.wait_phase("trun", name, "Running")
        trainers = {pod["metadata"]["uid"] for pod in bench.pods()}
        builders = {pod["metadata"]["uid"] for pod in bench.pods("build")}
        for epoch, code in enumerate(({}, {CODE: older}, {}), start=1):
            bench.operator.kill()
            train_to(bench, epoch)
            bench.operator.start(LEAD_RESYNC_SECONDS="2", **code)
            wait_for("the news", lambda epoch=epoch: told_epochs(bench) == [epoch] * len(STAGES))
            wait_for("more looks", lambda: bench.operator.looks() >= 2 * len(STAGES))
            assert {pod["metadata"]["uid"] for pod in bench.pods()} == trainers
            assert pods_touched(bench) == 0
            assert bench.status("dsc", "town")["phase"] == "Ready"
        bench.driver.script.held.clear()
        for name in STAGES:
            done = bench.wait_phase("trun", name, "Succeeded", "Failed")
            assert (done["phase"], done["restarts"]["total"], done["stages"][0]["attempt"]) == ("Succeeded", 0, 1)
    assert set(bench.driver.seen) == trainers | builders
    assert truth.violations == []


def train_to(bench: Bench, epoch: int) -> None:
    """Lets every run commit and report this epoch."""
    bench.driver.script.held_at = epoch
    for pod in bench.pods():
        bench.driver.begin_training(pod)


def told_epochs(bench: Bench) -> list[int]:
    return [newest_entry(bench.status("trun", name))["progress"]["epoch"] for name in STAGES]


def pods_touched(bench: Bench) -> float:
    """Returns how many pods the operator that runs now has made or deleted."""
    return sum(bench.operator.metric("lead_api_calls_total", verb=v, resource="pods") for v in ("post", "delete"))
