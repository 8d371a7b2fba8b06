"""Each alert fires on what it is for and on nothing else, by the real promtool; what it shows names a thing to do."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from lead_testing.metric_tables import ALERTS, rules
from lead_testing.prometheus import promtool

INSTANCE = '{namespace="a", run="drive", stage="train", seed="0"}'
PHASE = 'lead_run_phase{namespace="a", run="drive", phase="%s"}'
RECONCILED = 'lead_reconcile_duration_seconds_count{kind="TrainingRun", result="%s"}'
READS = 'lead_store_read_duration_seconds_count{result="%s"}'
VOLUME = 'kubelet_volume_stats_%s_bytes{namespace="s", persistentvolumeclaim="data-lead-minio-0"}'
LOADING = 'lead_run_loading_seconds_total{namespace="a", run="drive", stage="train", seed="0", loading_stage="%s"}'
RESTARTS = 'lead_run_restarts_total{namespace="a", run="drive", class=%s}'
TWO_REPLICAS = '{instance="%s", job="operator"}'

Series = dict[str, str]


@dataclass(frozen=True)
class Case:
    """Series, one value a minute in promtool's notation, with which an alert fires after `at`, and with which not."""

    fires: Series
    silent: tuple[Series, ...]
    at: str = "2h"


CASES = {
    "LeadOperatorDown": Case(
        {"lead_leader" + TWO_REPLICAS % "1": "1x9 0x120"},
        ({"lead_leader" + TWO_REPLICAS % "1": "0x130", "lead_leader" + TWO_REPLICAS % "2": "1x130"},),
    ),
    "LeadOperatorRestarts": Case(
        {
            "process_start_time_seconds" + TWO_REPLICAS % "1": "1x100 2x5 3x5 4x10",
            "lead_leader" + TWO_REPLICAS % "1": "1x130",
        },
        (
            {
                "process_start_time_seconds" + TWO_REPLICAS % "1": "1x100 2x20",
                "lead_leader" + TWO_REPLICAS % "1": "1x130",
            },
            {"process_start_time_seconds" + TWO_REPLICAS % "other": "1x100 2x5 3x5 4x10"},
        ),
    ),
    "LeadOperatorIdle": Case(
        {'lead_resources{kind="TrainingRun", phase="Running"}': "1x130", RECONCILED % "ok": "0+1x90 90x60"},
        (
            {'lead_resources{kind="TrainingRun", phase="Running"}': "1x130", RECONCILED % "ok": "0+1x130"},
            {'lead_resources{kind="TrainingRun", phase="Succeeded"}': "9x130", RECONCILED % "ok": "7x130"},
        ),
    ),
    "LeadReconcileErrors": Case(
        {RECONCILED % "ApiError": "0+2x130", RECONCILED % "ok": "0+1x130"},
        (
            {RECONCILED % "ApiError": "0+1x130", RECONCILED % "ok": "0+9x130"},
            {RECONCILED % "conflict": "0+9x130", RECONCILED % "ok": "0+1x130"},
        ),
    ),
    "LeadWatchStalled": Case(
        {'lead_watch_age_seconds{watch="pods/a"}': "0+60x130"}, ({'lead_watch_age_seconds{watch="pods/a"}': "50x130"},)
    ),
    "LeadQueueOld": Case(
        {"lead_work_queue_age_seconds": "0+60x130"}, ({"lead_work_queue_age_seconds": "0 9 400 2 0x130"},)
    ),
    "LeadNamespaceNotServed": Case(
        {'lead_namespace_served{namespace="a"}': "0x130"}, ({'lead_namespace_served{namespace="a"}': "1x130"},)
    ),
    "LeadStoreUnavailable": Case(
        {READS % "ok": "0+1x130", READS % "StoreUnavailable": "0+6x130"},
        ({READS % "ok": "0+60x130", READS % "StoreUnavailable": "0+1x130"}, {READS % "ok": "0+60x130"}),
    ),
    "LeadStoreAlmostFull": Case(
        {VOLUME % "available": "9x130", VOLUME % "capacity": "100x130"},
        ({VOLUME % "available": "11x130", VOLUME % "capacity": "100x130"},),
    ),
    "LeadRunFailed": Case({PHASE % "Failed": "_x60 1x60"}, ({PHASE % "Succeeded": "1x130"},)),
    "LeadCacheFailed": Case(
        {'lead_cache_phase{namespace="a", cache="town", phase="Failed"}': "1x130"},
        ({'lead_cache_phase{namespace="a", cache="town", phase="Ready"}': "1x130"},),
    ),
    "LeadRunSilent": Case(
        {"lead_run_report_age_seconds" + INSTANCE: "0+60x130"}, ({"lead_run_report_age_seconds" + INSTANCE: "10x130"},)
    ),
    "LeadRunStuck": Case(
        {"lead_run_step_age_seconds" + INSTANCE: "0+60x130", "lead_run_report_age_seconds" + INSTANCE: "5x130"},
        (
            {"lead_run_step_age_seconds" + INSTANCE: "5x130", "lead_run_report_age_seconds" + INSTANCE: "5x130"},
            {"lead_run_step_age_seconds" + INSTANCE: "0+60x130", "lead_run_report_age_seconds" + INSTANCE: "0+60x130"},
        ),
    ),
    "LeadRunRestarts": Case(
        {RESTARTS % '"program"': "0x90 2x5 3x5 4x5 5x20"},
        (
            {RESTARTS % '"program"': "7x90 8x5 9x30"},
            {RESTARTS % '"voluntary"': "0x90 2x5 3x5 4x5 5x20"},
            {RESTARTS % f'"program", instance="{each}"': "0x90 2x40" for each in "12"},  # two replicas export it
        ),
    ),
    "LeadRunCheckpointOld": Case(
        {
            "lead_run_attempt_age_seconds" + INSTANCE: "0+60x300",
            "lead_run_checkpoint_age_seconds" + INSTANCE: "3600+60x300",
            "lead_run_step_duration_seconds_count" + INSTANCE: "0+60x300",
        },
        (
            {  # an attempt that resumed an hour ago from what is old
                "lead_run_attempt_age_seconds" + INSTANCE: "_x235 0+60x65",
                "lead_run_checkpoint_age_seconds" + INSTANCE: "36000+60x300",
                "lead_run_step_duration_seconds_count" + INSTANCE: "0+60x300",
            },
            {  # an evaluation, which commits nothing until its end
                "lead_run_attempt_age_seconds" + INSTANCE: "0+60x300",
                "lead_run_step_duration_seconds_count" + INSTANCE: "0x300",
            },
            {
                "lead_run_attempt_age_seconds" + INSTANCE: "0+60x300",
                "lead_run_checkpoint_age_seconds" + INSTANCE: "60x300",
                "lead_run_step_duration_seconds_count" + INSTANCE: "0+60x300",
            },
        ),
        at="5h",
    ),
    "LeadSessionCacheDegraded": Case(
        {"lead_run_session_cache_degraded_ranks" + INSTANCE: "0x9 2x130"},
        ({"lead_run_session_cache_degraded_ranks" + INSTANCE: "0x130"},),
    ),
    "LeadRunWaitsForData": Case(
        {LOADING % "wait": "0+30x130", LOADING % "step": "0+30x130", LOADING % "load": "0+90x130"},
        ({LOADING % "wait": "0+3x130", LOADING % "step": "0+57x130", LOADING % "load": "0+90x130"},),
    ),
    "LeadRunWaiting": Case(
        {PHASE % "Pending": "1x130"},
        ({PHASE % "Running": "1x130"}, {PHASE % "Starting": "1x20 _x110"}),
    ),
}


def played(alert: str, series: Series, at: str, *, fires: bool) -> dict[str, Any]:
    """Returns promtool's test of one case; the alert itself is asked for, as Prometheus would store it."""
    question = f'min(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)'
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": question, "eval_time": at, "exp_samples": [{"labels": "{}", "value": int(fires)}]}
        ],
    }


def test_every_alert_is_tried() -> None:
    assert set(CASES) == {rule["alert"] for rule in rules()}


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_on_what_it_is_for_and_on_nothing_else(alert: str, tmp_path: Path) -> None:
    case = CASES[alert]
    tests = [played(alert, case.fires, case.at, fires=True)]
    tests += [played(alert, series, case.at, fires=False) for series in case.silent]
    file = tmp_path / "cases.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([promtool(), "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_promtool_finds_no_fault_in_the_rules() -> None:
    words = [promtool(), "check", "rules", "--lint-fatal", str(ALERTS)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_wrong_what_it_means_and_what_to_do(rule: dict[str, Any]) -> None:
    texts = rule["annotations"]
    assert set(texts) == {"summary", "description", "runbook"}
    assert all(len(text.split()) >= 4 and text.endswith(".") for text in texts.values())
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
