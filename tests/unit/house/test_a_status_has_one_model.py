"""What a status holds is named once: by the CRD for people and by one typed model for the code, which agree."""

import ast
import dataclasses
import re
import typing
from pathlib import Path
from typing import Any

import pytest

from lead_operator.resources.crd_defaults import read_schema
from lead_operator.resources.dataset_cache_status import DatasetCacheStatus
from lead_operator.resources.status_format import StatusPart, field_keys
from lead_operator.resources.training_run_status import TrainingRunStatus

OPERATOR = Path(__file__).resolve().parents[3] / "operator" / "lead_operator"
MODELS: dict[str, type[StatusPart]] = {"TrainingRun": TrainingRunStatus, "DatasetCache": DatasetCacheStatus}
# Keys that Kubernetes itself, a spec or a record has as well.
NOT_OURS_ALONE = {
    "attempt", "checkpoint", "class", "completionTime", "conditions", "config", "datasets", "done", "index", "message",
    "name", "node", "nodes", "observedGeneration", "phase", "pod", "pods", "reason", "seed", "shards", "stage",
    "stages", "startTime", "status", "time", "type", "uri", "build", "resources", "generation", "cache", "digest",
    "infrastructure", "program", "voluntary", "routes", "samples", "metrics", "seeds", "lastTransitionTime", "desired",
    "exitCode", "created", "restarts", "epoch", "epochs", "step", "total", "size", "workers",
    "sessionCache", "closedLoop", "success",
}  # fmt: skip


def part_of(annotation: Any) -> type[StatusPart] | None:
    """Returns the part of a status in a field's type, in a tuple or beside None too."""
    if isinstance(annotation, type) and issubclass(annotation, StatusPart):
        return annotation
    return next(filter(None, map(part_of, typing.get_args(annotation))), None)


def compare(model: type[StatusPart], schema: dict[str, Any], path: str) -> list[str]:
    """Returns each key that model or schema alone has, and each that one of them alone requires."""
    hints, fields = typing.get_type_hints(model), dataclasses.fields(model)
    keys = dict(zip([each.name for each in fields], field_keys(model, *(each.name for each in fields)), strict=True))
    absent = dataclasses.MISSING
    required = {keys[f.name] for f in fields if f.default is absent and f.default_factory is absent}
    wrong = [f"{path}.{key}" for key in set(keys.values()) ^ set(schema["properties"])]
    wrong += [f"{path}.{key} is required by one alone" for key in required ^ set(schema.get("required", ()))]
    for name, key in keys.items():
        below = schema["properties"].get(key, {})
        if (part := part_of(hints[name])) is not None:
            wrong += compare(part, below.get("items", below), f"{path}.{key}")
    return wrong


@pytest.mark.parametrize("kind", MODELS)
def test_the_model_of_a_status_has_the_fields_of_the_crd(kind: str) -> None:
    assert compare(MODELS[kind], read_schema(kind)["properties"]["status"], "status") == []


def keys_of(schema: dict[str, Any]) -> set[str]:
    below = schema.get("items", schema).get("properties", {})
    return {*below, *(key for child in below.values() for key in keys_of(child))}


def test_no_other_file_spells_a_key_of_a_status() -> None:
    keys = {key for kind in MODELS for key in keys_of(read_schema(kind)["properties"]["status"])} - NOT_OURS_ALONE
    found = []
    for file in OPERATOR.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and node.value in keys:
                found.append(f"{file.relative_to(OPERATOR)}:{node.lineno}: {node.value}")
    assert found == [], "read it by resources/*_status.py"


def test_decisions_are_typed() -> None:
    """`Any` stands there for what a person wrote freely (`config`) alone."""
    text = "\n".join(file.read_text() for file in (OPERATOR / "decisions").rglob("*.py"))
    assert 1000 * len(re.findall(r"\bAny\b", text)) < 5 * text.count("\n")
