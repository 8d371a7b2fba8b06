"""Alerts and dashboard are off until a value asks for them, and then hold the files as they are."""

import json
from typing import Any

import yaml

from lead_testing.metric_tables import ALERTS, DASHBOARD

ALERTS_ON = ("--set", "monitoring.alerts.enabled=true", "--set", "monitoring.alerts.labels.release=prometheus")
DASHBOARD_ON = ("--set", "monitoring.dashboard.enabled=true", "--set", "monitoring.dashboard.namespace=monitoring")


def test_nothing_needs_the_crds_of_the_prometheus_operator_by_default(render: Any) -> None:
    assert not [each for each in render() if each["apiVersion"].startswith("monitoring.coreos.com/")]
    assert not [each for each in render() if "grafana_dashboard" in each["metadata"].get("labels", {})]


def test_the_rules_are_those_of_the_file(render: Any) -> None:
    (found,) = [each for each in render("defaults", *ALERTS_ON) if each["kind"] == "PrometheusRule"]
    assert found["spec"] == yaml.safe_load(ALERTS.read_text())
    assert found["metadata"]["labels"]["release"] == "prometheus"
    assert (found["metadata"]["name"], found["metadata"]["namespace"]) == ("lead-alerts", "lead-system")


def test_the_sidecar_of_grafana_finds_the_dashboard_of_the_file(render: Any) -> None:
    (found,) = [each for each in render("defaults", *DASHBOARD_ON) if each["metadata"]["name"] == "lead-dashboard"]
    assert (found["kind"], found["metadata"]["namespace"]) == ("ConfigMap", "monitoring")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(found["data"]["lead.json"]) == json.loads(DASHBOARD.read_text())


def test_every_panel_says_what_it_shows_and_lies_beside_the_others() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert panel["title"] and not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == "${datasource}" and panel["fieldConfig"]["defaults"]["unit"]


def test_a_label_of_a_run_is_not_taken_for_one_of_the_operator(render: Any) -> None:
    (monitor,) = [each for each in render("cluster_wide") if each["kind"] == "ServiceMonitor"]
    assert monitor["spec"]["endpoints"][0]["honorLabels"] is True
