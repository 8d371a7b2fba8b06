"""Commands, values, metrics and links of the pages exist: what a reader types is taken."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from lead_testing import PROJECT_ROOT, metric_tables
from lead_testing.pages import PAGES, commands
from lead_trainer.command_line import TAKE_KEYS, parser
from lead_trainer.local.config_sources import with_flags

SCHEMA = json.loads((PROJECT_ROOT / "charts/lead/values.schema.json").read_text())


def ids(page: Path) -> str:
    return str(page.relative_to(PROJECT_ROOT))


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_link_leads_to_a_file_and_a_heading_of_it(page: Path) -> None:
    for target, _, heading in re.findall(r"\]\((?!https?:)([^)#\s]*)(#([^)\s]+))?\)", page.read_text()):
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", found.read_text(), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_lead_command_is_one_that_lead_takes(page: Path) -> None:
    for command in commands(page, "lead"):
        words = [word for word in shlex.split(command, comments=True)[1:] if word not in ("[…]", "…")]
        known, rest = parser().parse_known_args(with_flags(words) if words[0] in TAKE_KEYS else words)
        assert not [word for word in rest if word.startswith("-") or "=" not in word], command
        assert known.command


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_value_that_is_set_is_one_of_the_chart(page: Path) -> None:
    for text in re.findall(r"--set[ =]([^\s`]+)", page.read_text()):
        for setting in text.split(","):
            assert has(SCHEMA, re.split(r"[.\[]", setting.partition("=")[0].rstrip("…").rstrip("."))), setting


def test_every_value_that_a_message_of_the_operator_names_is_one_of_the_chart() -> None:
    sources = "\n".join(path.read_text() for path in (PROJECT_ROOT / "operator/lead_operator").rglob("*.py"))
    named = set(re.findall(r"([a-z]\w*(?:\.\w+)+) (?:in|of) the chart's values", sources))
    assert {"images.trainer.pullPolicy", "runs.namespaces"} <= named
    assert {name for name in named if not has(SCHEMA, name.split("."))} == set()


def has(schema: dict[str, object], path: list[str]) -> bool:
    for name in path:
        if name.endswith("]"):
            schema = schema["items"]  # type: ignore[assignment]
            continue
        known: dict[str, dict[str, object]] = schema.get("properties", {})  # type: ignore[assignment]
        if name not in known:
            return False
        schema = known[name]
    return True


def test_the_page_of_monitoring_holds_every_metric_and_alert() -> None:
    page = metric_tables.PAGE.read_text()
    assert page == metric_tables.with_tables(page), "run `python -m lead_testing.metric_tables --write`"


def expressions() -> Iterator[str]:
    """Yields every query of the alerts and of the dashboard: its panels, annotations and variables."""
    yield from (rule["expr"] for rule in metric_tables.rules())
    dashboard = json.loads(metric_tables.DASHBOARD.read_text())
    yield from (target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ()))
    yield from (each["expr"] for each in dashboard["annotations"]["list"] if "expr" in each)
    yield from (each["definition"] for each in dashboard["templating"]["list"] if "definition" in each)


def test_alerts_and_dashboard_ask_for_metrics_that_there_are() -> None:
    known = {name for name, *_ in metric_tables.exported()}
    asked = {name for each in expressions() for name in re.findall(r"\b(?:lead|process)_[a-z_]+\b", each)}
    parts = re.compile(r"_(count|sum|bucket)$")
    assert len(asked) > 30 and {parts.sub("", name) for name in asked} <= known


def test_a_query_counts_one_kind_alone_or_the_greater_count_would_hide_the_other() -> None:
    asked = [labels for each in expressions() for labels in re.findall(r"by \((.*?)\) \(lead_resources", each)]
    assert asked and all("kind" in labels for labels in asked), asked
