"""/healthz is red when a watch is dead, and /metrics tells what the operator does, in numbers that are true."""

import json
from pathlib import Path

from lead_testing.api_bench import Bench, open_bench
from lead_testing.kube_faults.plan import Fault, Plan
from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.minio_server import MinioServer
from lead_testing.operator_process import CONSTANTS, PATIENT, wait_for
from lead_testing.pod_driver import Exit

SHORT = {"lead_operator.kube.watchdog.SILENT_S": 20.0, "lead_operator.kube.watchdog.CHECK_S": 3600.0,
         "lead_operator.kube.client.WATCH_GRACE_S": 3600.0}  # fmt: skip


def test_healthz_is_red_when_a_watch_is_dead(control_plane: ControlPlane, minio: MinioServer, tmp_path: Path) -> None:
    plan = Plan("", (Fault("stall", 1, "pods"),))  # the watch stays open and tells nothing: the worst kind of death
    with open_bench(control_plane, minio, tmp_path, plan) as bench:
        bench.operator.start(
            **{CONSTANTS: json.dumps({**PATIENT, **SHORT}), "LEAD_RESYNC_SECONDS": "4", "LEAD_RELIST_SECONDS": "3600"}
        )
        wait_for("a healthy start", lambda: bench.operator.page("healthz") == (200, "ok"))
        bench.apply(a_dataset_cache("town", "datasets/town"))
        wait_for("a red page", lambda: bench.operator.page("healthz")[0] == 503)
        status, said = bench.operator.page("healthz")
        assert (status, said.startswith(f"watch of pods/{bench.namespace} has been silent")) == (503, True)


def test_metrics_tell_what_happened(bench: Bench) -> None:
    bench.driver.script.exits[("pretrain", 1, 1)] = Exit(1, "boom")
    bench.driver.script.held.add("pretrain")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town"))
    wait_for("the second attempt", lambda: bench.status("trun", "drive").get("restarts", {}).get("program") == 1)
    bench.wait_phase("trun", "drive", "Running")
    metric = bench.operator.metric
    wait_for("one running run", lambda: metric("lead_resources", kind="TrainingRun", phase="Running") == 1)
    assert metric("lead_resources", kind="DatasetCache", phase="Ready") == 1
    assert metric("lead_restarts_total", **{"class": "program"}) == 1
    assert metric("lead_reconcile_duration_seconds_count", kind="TrainingRun", result="ok") >= 5
    assert metric("lead_api_calls_total", verb="post", resource="pods", code="201") == 6
    assert metric("lead_api_calls_total", verb="post", resource="services", code="201") == 1
    assert metric("lead_work_queue_depth") >= 0
    assert "lead_work_queue_depth" in bench.operator.page("metrics")[1]
    of_run = {"namespace": bench.namespace, "run": "drive", "stage": "pretrain", "seed": "0"}
    wait_for("the newest report to grow old", lambda: metric("lead_run_report_age_seconds", **of_run) > 1)
    assert metric("lead_run_attempt", **of_run) == 2
    assert metric("lead_run_session_cache_reads_total", result="hit", **of_run) == 93
    assert metric("lead_run_restarts_total", namespace=bench.namespace, run="drive", **{"class": "program"}) == 1
    bench.driver.script.held.clear()
    bench.wait_phase("trun", "drive", "Succeeded")
    wait_for("nothing to report", lambda: "lead_run_report_age_seconds{" not in bench.operator.page("metrics")[1])
    assert metric("lead_run_phase", namespace=bench.namespace, run="drive", phase="Succeeded") == 1
