"""Writes the tables of metrics and of alerts on the chart's page of monitoring: from the code, and from the rules.

python -m lead_testing.metric_tables --write
"""

import argparse
import re
from collections.abc import Iterator
from typing import Any

import yaml
from prometheus_client.metrics import MetricWrapperBase

from lead_operator import metrics, run_metrics
from lead_testing import PROJECT_ROOT

CHART = PROJECT_ROOT / "charts/lead"
PAGE = CHART / "monitoring.md"
ALERTS = CHART / "observability/alerts.yaml"
DASHBOARD = CHART / "observability/dashboard.json"
MARKS = "<!-- {}: begin -->\n", "<!-- {}: end -->\n"


def rules() -> list[dict[str, Any]]:
    """Returns the alerting rules of all groups."""
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def exported() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Yields name, type, labels and help of every metric of /metrics, as a query names it."""
    held = [each for each in vars(metrics).values() if isinstance(each, MetricWrapperBase)]
    labels = {family.name: each._labelnames for each in held for family in each.describe()}
    labels |= {family.name: getattr(family, "_labelnames", ()) for family in run_metrics.RUNS.collect()}
    for family in metrics.REGISTRY.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        yield name, family.type, tuple(labels.get(family.name, ())), family.documentation


def metrics_table() -> str:
    """Returns the table of metrics."""
    rows = (
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {text} |"
        for name, kind, labels, text in sorted(exported())
    )
    return "\n".join(["| metric | type | labels | meaning |", "|---|---|---|---|", *rows]) + "\n"


def alerts_table() -> str:
    """Returns the table of alerts, with names in capitals where Prometheus fills in a label."""
    rows = (f"| `{rule['alert']}` | {rule['labels']['severity']} | {_cell(rule)} |" for rule in rules())
    return "\n".join(["| alert | severity | what to do |", "|---|---|---|", *rows]) + "\n"


def _cell(rule: dict[str, Any]) -> str:
    text = str(rule["annotations"]["runbook"]).replace("|", "\\|")
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: found[1].upper(), text)


def with_tables(page: str) -> str:
    """Returns the page with both tables as they should be."""
    for name, table in (("metrics", metrics_table()), ("alerts", alerts_table())):
        begin, end = (mark.format(name) for mark in MARKS)
        before, _, rest = page.partition(begin)
        page = before + begin + table + end + rest.partition(end)[2]
    return page


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(prog="lead_testing.metric_tables", description=__doc__)
    parser.add_argument("--write", action="store_true", required=True)
    parser.parse_args()
    PAGE.write_text(with_tables(PAGE.read_text()))


if __name__ == "__main__":
    main()
