"""Many runs at once on one operator. How fast is measured by the benchmarks; here it is: does it hold."""

import json
import os
from pathlib import Path

import pytest

from lead_testing.api_bench import Bench
from lead_testing.kube_faults.truth import Truth
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import CONSTANTS, PATIENT, wait_for
from lead_testing.pod_driver import Exit

RUNS = int(os.environ.get("LEAD_TEST_RUNS", "40"))
PATIENCE_S = 300 + 10 * RUNS  # a deadline for the hopeless: how long it takes is for the benchmarks to tell
LOOKS_S = max(2.0, RUNS / 200)  # between two looks at each: what an operator on a small machine can keep up with
MAX_RSS_MIB = 400  # a limit of the chart, not a goal of speed


@pytest.mark.timeout(3600)
def test_many_runs_at_once_their_pods_failing_together_and_a_restart_that_writes_nothing(bench: Bench) -> None:
    """Runs of one pod: all get a status, all fail in one moment, all come back; then a restart changes nothing."""
    bench.driver.script.held.add("pretrain")
    runs = [a_training_run(f"run-{number:03d}", "town", nodes=1) for number in range(RUNS)]
    constants = {**PATIENT, "lead_operator.cluster.apply.STATUS_PAUSE_S": 0.0}  # nothing is left to write at rest
    bench.operator.start(LEAD_PROGRESS_SECONDS=str(LOOKS_S), **{CONSTANTS: json.dumps(constants)})
    with Truth(bench.plane.kubeconfig, bench.namespace) as truth:
        bench.apply(a_dataset_cache("town", "datasets/town"), *runs)
        wait_for("all to train", lambda: phases(bench).count("Running") == RUNS, within_s=PATIENCE_S, poll_s=1)
        bench.driver.script.exits[("pretrain", 1, 0)] = Exit(1, "a storm")
        wait_for("all to be back", lambda: back(bench) == RUNS, within_s=PATIENCE_S, poll_s=1)
    assert truth.violations == []
    assert rss_mib(bench.operator.pid) < MAX_RSS_MIB
    wait_for("rest", lambda: writes_nothing_more(bench), within_s=PATIENCE_S)
    bench.operator.kill()
    bench.operator.start(LEAD_PROGRESS_SECONDS="3600", LEAD_RESYNC_SECONDS=str(LOOKS_S))
    wait_for("two looks at each", lambda: looks(bench) >= 2 * RUNS, within_s=PATIENCE_S)
    assert bench.operator.writes() == 0
    bench.driver.script.held.clear()
    wait_for("all to end", lambda: phases(bench).count("Succeeded") == RUNS, within_s=PATIENCE_S, poll_s=1)


def writes_nothing_more(bench: Bench) -> bool:
    """Tells whether all runs were looked at twice without a write."""
    looked, before = looks(bench), bench.operator.writes()
    wait_for("two looks at each", lambda: looks(bench) >= looked + 2 * RUNS, within_s=PATIENCE_S)
    return bench.operator.writes() == before


def looks(bench: Bench) -> float:
    return bench.operator.metric("lead_reconcile_duration_seconds_count", kind="TrainingRun")


def phases(bench: Bench) -> list[str]:
    return [run.get("status", {}).get("phase", "") for run in bench.items("tr")]


def back(bench: Bench) -> int:
    """Counts the runs that train in their second attempt."""
    found = [run["status"] for run in bench.items("tr")]
    return sum(s["phase"] == "Running" and s["restarts"]["program"] == 1 for s in found)


def rss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
