"""No message advises to set a field that the API server lets nobody change."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lead_operator.resources.crd_defaults import read_schema
from lead_testing import PROJECT_ROOT

CODE = [*(PROJECT_ROOT / "operator").rglob("*.py"), *(PROJECT_ROOT / "trainer").rglob("*.py")]
ADVICE = re.compile(
    r"\b(?:set|change|edit|switch)\s+(?:spec\.)?([A-Za-z]\w*(?:\.\w+)*)\s+(?:to|in|of)\b", re.IGNORECASE
)


def fixed_fields(schema: dict[str, Any], path: str = "", inherited: bool = False) -> Iterator[str]:
    """Yields the paths below spec of the fields whose rule, or that of a field around them, keeps the old value."""
    fixed = inherited or any(rule["rule"] == "self == oldSelf" for rule in schema.get("x-kubernetes-validations", ()))
    if fixed and path:
        yield path
    for name, child in schema.get("properties", {}).items():
        yield from fixed_fields(child, f"{path}.{name}".lstrip("."), fixed)


FIXED = {kind: set(fixed_fields(read_schema(kind)["properties"]["spec"])) for kind in ("TrainingRun", "DatasetCache")}


def advised(text: str) -> set[str]:
    """Returns the fixed fields that a text advises to set, by their path or by their last name."""
    names = {name: path for fields in FIXED.values() for path in fields for name in (path, path.rpartition(".")[2])}
    return {names[found] for found in ADVICE.findall(text) if found in names}


def messages(path: Path) -> Iterator[str]:
    """Yields the texts of a module, a formatted one with `…` for its values; no docstring."""
    tree = ast.parse(path.read_text())
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    about = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (inside | about):
            yield node.value


def test_the_fixed_fields_are_read_from_the_crds() -> None:
    assert {"checkpoint.resume", "procsPerNode", "storageProfile"} <= FIXED["TrainingRun"]
    assert "suspend" not in FIXED["TrainingRun"] and FIXED["DatasetCache"] == {"recipe", "storageProfile"}


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("to start again from step 0, create a new run or set resume to Never", "checkpoint.resume"),
        ("change spec.storageProfile to one that is defined", "storageProfile"),
    ],
)
def test_such_advice_is_found(text: str, field: str) -> None:
    assert advised(text) == {field}


def test_no_message_advises_it() -> None:
    found = {f"{path.name}: {text}" for path in CODE for text in messages(path) if advised(text)}
    assert found == set()
    assert any("set spec.suspend to false" in text for path in CODE for text in messages(path)), "messages are read"
