"""Alerts and monitors of the chart on an API server with the Prometheus operator's own CRDs: it takes every field."""

import json
from typing import Any

import pytest
import yaml

from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.local_cluster.errors import CannotRun, StepFailed
from lead_testing.local_cluster.go_modules import module_folder
from lead_testing.local_cluster.home import Home

MODULE = "github.com/prometheus-operator/prometheus-operator"
KINDS = {"PrometheusRule": "prometheusrules", "ServiceMonitor": "servicemonitors"}
ON = (
    "--set", "monitoring.alerts.enabled=true", "--set", "monitoring.alerts.labels.release=prometheus",
    "--set", "operator.serviceMonitor.enabled=true", "--set", "operator.serviceMonitor.labels.release=prometheus",
)  # fmt: skip


@pytest.fixture(scope="module")
def monitored(server: ControlPlane) -> ControlPlane:
    """The API server with the two CRDs, established."""
    try:
        folder = module_folder(Home.from_environment(), "prometheus-operator", MODULE)
    except CannotRun as reason:
        pytest.skip(f"the Prometheus operator's CRDs cannot be fetched: {reason}")
    for plural in KINDS.values():
        crd = folder / f"example/prometheus-operator-crd/monitoring.coreos.com_{plural}.yaml"
        server.kubectl("apply", "--server-side", "-f", "-", stdin=crd.read_text())
        server.kubectl("wait", "--for=condition=Established", f"crd/{plural}.monitoring.coreos.com", "--timeout=60s")
    return server


@pytest.mark.parametrize("authentication", ["TokenReview", "None"])
def test_every_field_of_alerts_and_monitor_is_one_of_theirs(
    monitored: ControlPlane, render: Any, authentication: str
) -> None:
    objects = render("defaults", *ON, "--set", f"operator.metrics.authentication={authentication}")
    ours = [each for each in objects if each["apiVersion"].startswith("monitoring.coreos.com/")]
    assert {each["kind"] for each in ours} == set(KINDS)
    for each in ours:
        arguments = ("apply", "--server-side", "--force-conflicts", "--validate=strict", "-o", "json", "-f", "-")
        stored = json.loads(monitored.kubectl(*arguments, stdin=yaml.safe_dump(each)))
        assert stored["spec"] == each["spec"], each["kind"]  # nothing was pruned or filled in


def test_a_misspelt_field_would_be_rejected(monitored: ControlPlane, render: Any) -> None:
    (monitor,) = [each for each in render("defaults", *ON) if each["kind"] == "ServiceMonitor"]
    monitor["spec"]["endpoints"][0]["honourLabels"] = True
    with pytest.raises(StepFailed, match="honourLabels"):
        monitored.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", stdin=yaml.safe_dump(monitor))
