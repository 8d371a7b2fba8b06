"""Many runs at once on one operator. How fast is measured by the benchmarks; here it is: does it hold."""

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lead_testing.api_bench import Bench
from lead_testing.figures import record, stay
from lead_testing.kube_faults.truth import Truth
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import CONSTANTS, PATIENT, wait_for
from lead_testing.pod_driver import Exit

RUNS = int(os.environ.get("LEAD_TEST_RUNS", "40"))
PATIENCE_S = 300 + 10 * RUNS  # a deadline for the hopeless: how long it takes is for the benchmarks to tell
LOOKS_S = max(2.0, RUNS / 200)  # between two looks at each: what an operator on a small machine can keep up with
MAX_RSS_MIB = 400  # a limit of the chart, not a goal of speed


@pytest.mark.timeout(max(3600, 9 * RUNS))  # a mark stands above the command line: it has to be long enough for all
def test_many_runs_their_pods_failing_together_and_a_restart_that_writes_nothing(bench: Bench) -> None:
    """Runs of one pod: all get a status, all fail in one moment, all come back; then a restart changes nothing."""
    bench.driver.script.held.add("pretrain")
    runs = [a_training_run(f"run-{number:03d}", "town", nodes=1) for number in range(RUNS)]
    constants = {**PATIENT, "lead_operator.controllers.apply.STATUS_PAUSE_S": 0.0}  # nothing is left to write at rest
    settings = {"LEAD_PROGRESS_SECONDS": str(LOOKS_S), CONSTANTS: json.dumps(constants)}
    bench.operator.start(**settings)
    with Truth(bench.plane.kubeconfig, bench.namespace) as truth:
        calls = a_kill_at_half(bench, settings, [a_dataset_cache("town", "datasets/town"), *runs])
        wait_for("all to train", lambda: phases(bench).count("Running") == RUNS, within_s=PATIENCE_S, poll_s=1)
        bench.driver.script.exits[("pretrain", 1, 0)] = Exit(1, "a storm")
        wait_for("all to be back", lambda: back(bench) == RUNS, within_s=PATIENCE_S, poll_s=1)
    assert truth.violations == []
    assert rss_mib(bench.operator.pid) < MAX_RSS_MIB
    record("rss_mib", rss_mib(bench.operator.pid))
    wait_for("rest", lambda: writes_nothing_more(bench), within_s=PATIENCE_S)
    calls += api_calls(bench)
    bench.operator.kill()
    bench.operator.start(LEAD_PROGRESS_SECONDS="3600", LEAD_RESYNC_SECONDS=str(LOOKS_S))
    wait_for("two looks at each", lambda: looks(bench) >= 2 * RUNS, within_s=PATIENCE_S)
    wait_for("two more", lambda: looks(bench) >= 4 * RUNS, within_s=PATIENCE_S)
    idle, since = calls_at_rest(bench), time.monotonic()
    stay("all at rest", RUNS / 20)
    record("idle_calls_per_s", (calls_at_rest(bench) - idle) / (time.monotonic() - since))
    record("idle_writes", bench.operator.writes())
    assert bench.operator.writes() == 0
    bench.driver.script.held.clear()
    wait_for("all to end", lambda: phases(bench).count("Succeeded") == RUNS, within_s=PATIENCE_S, poll_s=1)
    record("runs", RUNS)
    record("calls_per_run", (calls + api_calls(bench)) / RUNS)
    record("api_p99_s", api_p99_s(bench.plane.kubectl("get", "--raw", "/metrics")))


def a_kill_at_half(bench: Bench, settings: dict[str, str], manifests: list[dict[str, Any]]) -> float:
    """Applies all at once and kills the operator when half of the runs train; returns the calls of its first life."""
    applied = time.monotonic()
    bench.apply(*manifests)
    wait_for("half to train", lambda: phases(bench).count("Running") >= RUNS // 2, within_s=PATIENCE_S, poll_s=0.2)
    calls = api_calls(bench)
    bench.operator.kill()
    trained, killed = phases(bench).count("Running"), time.monotonic()
    bench.operator.start(**settings)
    wait_for("all to have a status", lambda: all(phases(bench)), within_s=PATIENCE_S, poll_s=0.2)
    record("first_status_s", time.monotonic() - applied)
    more = min(RUNS, trained + 1)
    wait_for("one more to train", lambda: phases(bench).count("Running") >= more, within_s=PATIENCE_S, poll_s=0.2)
    record("kill_costs_s", time.monotonic() - killed)
    return calls


def writes_nothing_more(bench: Bench) -> bool:
    """Tells whether all runs were looked at twice without a write."""
    looked, before = looks(bench), bench.operator.writes()
    wait_for("two looks at each", lambda: looks(bench) >= looked + 2 * RUNS, within_s=PATIENCE_S)
    return bench.operator.writes() == before


def api_calls(bench: Bench) -> float:
    """Returns how many calls to the API server the operator has made in this life."""
    return bench.operator.metric("lead_api_calls_total")


def calls_at_rest(bench: Bench) -> float:
    """Counts them without the lease, and without watches, which end here as often as the looks are made to come."""
    apart = ({"resource": "leases"}, {"verb": "watch"})
    return api_calls(bench) - sum(bench.operator.metric("lead_api_calls_total", **labels) for labels in apart)


def api_p99_s(metrics: str) -> float:
    """Returns the bound under which 99% of all answers of the API server came, watches apart, out of its own page."""
    buckets = Counter[float]()
    for line in metrics.splitlines():
        named = line.startswith("apiserver_request_duration_seconds_bucket{")
        if named and not any(f'verb="{verb}"' in line for verb in ("WATCH", "CONNECT")):
            bound = line.split('le="')[1].split('"')[0]
            buckets[float(bound)] += float(line.rsplit(" ", 1)[1])
    return min(bound for bound, count in buckets.items() if count >= 0.99 * buckets[float("inf")])


def looks(bench: Bench) -> float:
    return bench.operator.metric("lead_reconcile_duration_seconds_count", kind="TrainingRun")


def phases(bench: Bench) -> list[str]:
    return [run.get("status", {}).get("phase", "") for run in bench.items("trun")]


def back(bench: Bench) -> int:
    """Counts the runs that train in their second attempt."""
    found = [run["status"] for run in bench.items("trun")]
    return sum(s["phase"] == "Running" and s["restarts"]["program"] == 1 for s in found)


def rss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
