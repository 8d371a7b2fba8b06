"""Dashboard and alerts on a real Prometheus that scrapes the operator while a real trainer works for it."""

import json
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from lead_protocol.exit_codes import ExitCode
from lead_testing.api_bench import Bench, open_bench
from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.metric_tables import ALERTS, DASHBOARD, rules
from lead_testing.minio_server import MinioServer
from lead_testing.operator_process import wait_for
from lead_testing.prometheus import Prometheus, promtool
from lead_testing.real_pods import RealPods
from lead_trainer.cli import main

ROUTES, FRAMES = 1, 24
NOT_IN_A_GOOD_RUN = ("result!", 'phase="Failed"', "Pending|", "kubelet_volume_stats")


@pytest.fixture
def bench(control_plane: ControlPlane, minio: MinioServer, tmp_path: Path) -> Iterator[Bench]:
    """A bench whose pods are processes, with raw data of the recipe lead in its bucket."""
    pods = partial(RealPods, folder=tmp_path / "pods")
    with open_bench(control_plane, minio, tmp_path, pods=pods) as bench:
        bench.operator.start()
        raw = tmp_path / "raw"
        assert main(["example-data", str(raw), "--routes", str(ROUTES), "--frames", str(FRAMES)]) == ExitCode.DONE
        for file in sorted(path for path in raw.rglob("*") if path.is_file()):
            bench.store.put(f"datasets/town/{file.relative_to(raw)}", file.read_bytes())
        yield bench


def opened(query: str) -> str:
    """Returns a query with Grafana's variables as they are when the dashboard is opened."""
    return re.sub(r"\$(namespace|run)\b", ".*", query.replace("$__rate_interval", "30s"))


def queries() -> Iterator[tuple[str, str]]:
    """Yields panel and query."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        yield from ((panel["title"], opened(target["expr"])) for target in panel.get("targets", ()))


def selectors(expression: str) -> set[str]:
    """Returns the metrics of a query with their matchers."""
    found = re.findall(r"\b((?:lead|process|kubelet)_[a-z_]+(?:\{[^}]*\})?)", expression)
    return {each for each in found if not any(word in each for word in NOT_IN_A_GOOD_RUN)}


def test_every_panel_shows_a_real_run_and_no_alert_fires_on_it(bench: Bench, tmp_path: Path) -> None:
    target = {
        "job_name": "operator", "honor_labels": True,
        "static_configs": [{"targets": [bench.operator.address]}],
    }  # fmt: skip
    with Prometheus(tmp_path / "prometheus", target, (ALERTS,)) as server:
        run = a_training_run("drive", "town", nodes=1, stages=[{"name": "pretrain", "epochs": 500}])
        cache = a_dataset_cache("town", "datasets/town", collections=["full_pretrain"], build={"parallelism": 1})
        bench.apply(cache, run)
        bench.wait_phase("trun", "drive", "Running")
        checkpoints = "rate(lead_run_checkpoint_duration_seconds_count[30s]) > 0"
        wait_for("a checkpoint and steps to be counted", lambda: server.query(checkpoints))
        silent = {title: text for title, text in queries() if not server.query(text)}
        if not torch.cuda.is_available():
            gpu = {title for title, text in queries() if "lead_run_gpu" in text}
            assert len(gpu) == 2 and gpu <= set(silent)
            silent = {title: text for title, text in silent.items() if title not in gpu}
        assert silent == {}
        annotations = [each for each in json.loads(DASHBOARD.read_text())["annotations"]["list"] if "expr" in each]
        assert [server.query(opened(each["expr"])) for each in annotations] == [[]]  # the first attempt still trains
        asked = {each for rule in rules() for each in selectors(rule["expr"])}
        assert len(asked) > 15 and {each for each in asked if not server.query(each)} == set()
        loaded = [rule for group in server.get("rules")["groups"] for rule in group["rules"]]
        assert {rule["name"] for rule in loaded} == {rule["alert"] for rule in rules()}
        assert {rule["health"] for rule in loaded} == {"ok"}
        assert [alert for alert in server.get("alerts")["alerts"] if alert["state"] == "firing"] == []
    page = bench.operator.page("metrics")[1]
    done = subprocess.run([promtool(), "check", "metrics"], input=page, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
