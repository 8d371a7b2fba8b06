"""The pages for people speak of conditions, reasons and fields that the code knows."""

import re
from pathlib import Path

import pytest

from lead_operator.names import CachePhase, Condition, RunPhase
from lead_operator.resources.crd_defaults import crd_folder, read_schema
from lead_testing import PROJECT_ROOT

PAGES = {"TrainingRun": "trainingrun.md", "DatasetCache": "datasetcache.md"}
KUBERNETES = {"NetworkPolicy", "PersistentVolume", "PersistentVolumeClaims", "PodGroup"}


def page(kind: str) -> str:
    return (crd_folder() / "docs" / PAGES[kind]).read_text()


def sources() -> str:
    folder = PROJECT_ROOT / "operator"
    return "\n".join(p.read_text() for p in sorted(Path(folder).rglob("*.py")))


@pytest.mark.parametrize("kind", PAGES)
def test_every_reason_a_page_names_is_one_the_code_gives(kind: str) -> None:
    words = set(re.findall(r"\b(?:[A-Z][a-z]+){2,}\b", page(kind))) - KUBERNETES
    assert {word for word in words if word not in sources()} == set()


@pytest.mark.parametrize("kind", PAGES)
def test_the_table_of_conditions_is_complete(kind: str) -> None:
    section = page(kind).split("| Condition |")[1].split("\n\n")[0]
    told = {name.strip() for row in section.splitlines()[2:] for name in row.split("|")[1].split(",")}
    assert told <= {*Condition}
    if kind == "TrainingRun":
        assert told == {*Condition} - {Condition.SOURCE_DRIFT}


@pytest.mark.parametrize(("kind", "phases"), [("TrainingRun", RunPhase), ("DatasetCache", CachePhase)])
def test_every_phase_is_told(kind: str, phases: type[RunPhase] | type[CachePhase]) -> None:
    assert all(phase.value in page(kind) for phase in phases)


@pytest.mark.parametrize("kind", PAGES)
def test_every_field_in_code_type_exists(kind: str) -> None:
    """`likeThis` and `like.this` must name a field of the spec or the status."""
    properties = read_schema(kind)["properties"]
    known: set[str] = set()

    def walk(schema: dict[str, object]) -> None:
        for name, child in (schema.get("properties") or {}).items():  # type: ignore[attr-defined]
            known.add(name)
            walk(child)
        if isinstance(schema.get("items"), dict):
            walk(schema["items"])  # type: ignore[arg-type]

    walk(properties["spec"])
    walk(properties["status"])
    quoted = re.findall(r"`([a-z]+[A-Z][A-Za-z]*|[a-z][A-Za-z]*\.[a-z][A-Za-z.]*)(?:\[\])?`", page(kind))
    parts = {part for name in quoted for part in name.split(".")} - {"spec", "status"}
    assert parts - known == set()
