"""Commands, values, metrics and links of the pages exist: what a reader types is taken."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from lead_operator import metrics
from lead_testing import PROJECT_ROOT
from lead_testing.pages import PAGES, commands
from lead_trainer.command_line import TAKE_KEYS, parser
from lead_trainer.local.config_sources import with_flags

SCHEMA = json.loads((PROJECT_ROOT / "charts/lead/values.schema.json").read_text())
OPERATING = PROJECT_ROOT / "charts/lead/operating.md"


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


def exposed() -> Iterator[str]:
    for family in metrics.REGISTRY.collect():
        yield f"{family.name}_total" if family.type == "counter" else family.name


def test_the_operating_page_names_every_metric_and_no_other() -> None:
    named = set(re.findall(r"\blead_(?!trainer|operator|ui\b)[a-z_]+\b", OPERATING.read_text()))
    assert {name.removesuffix("_count") for name in named} == set(exposed())


def test_an_alert_counts_one_kind_alone_or_the_greater_count_would_hide_the_other() -> None:
    asked = re.findall(r"lead_resources\{(.*?)\}", OPERATING.read_text())
    assert asked and all('kind="' in labels for labels in asked), asked
