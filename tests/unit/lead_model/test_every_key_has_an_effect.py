"""A table over every key of the recipe `lead`: read by name somewhere, the run's own, or refused off its default."""

import ast
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_origin

import pytest

import lead_trainer
from lead_trainer.config_sources import RunKeys
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.lead import config as config_module
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.config_values import REFUSED, load_config
from lead_trainer.recipes.lead.prepare_keys import PreparationKeys

SOURCE = Path(str(lead_trainer.__file__)).parent
HOLDERS = {"config", "_config", "keys", "_keys"}  # what a config, or the preparation's part of it, is called


@cache
def reads() -> dict[str, set[str]]:
    """Returns the files that read each key, directly or through a derived property."""
    found: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        if path.samefile(str(config_module.__file__)):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and _holder(node.value) in HOLDERS:
                found.setdefault(node.attr, set()).add(path.relative_to(SOURCE).as_posix())
    for name, keys in _properties().items():
        for key in keys & LeadConfig.model_fields.keys():
            found.setdefault(key, set()).update(found.get(name, set()))
    return found


def _holder(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _properties() -> dict[str, set[str]]:
    """Returns what each property of the config reads, through other properties too."""
    direct: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(Path(str(config_module.__file__)).read_text())):
        if isinstance(node, ast.FunctionDef) and any(_holder(mark) == "property" for mark in node.decorator_list):
            inner = [leaf for leaf in ast.walk(node) if isinstance(leaf, ast.Attribute)]
            direct[node.name] = {leaf.attr for leaf in inner if _holder(leaf.value) == "self"}
    for _ in direct:
        direct = {name: keys.union(*(direct[key] for key in keys if key in direct)) for name, keys in direct.items()}
    return direct


def _one_value_only(key: str) -> bool:
    return (
        get_origin(LeadConfig.model_fields[key].annotation) is Literal
        and len(
            LeadConfig.model_fields[key].annotation.__args__  # type: ignore[union-attr]
        )
        == 1
    )


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return [1] if isinstance(value, tuple) else value + 1


@pytest.mark.parametrize("key", sorted(LeadConfig.model_fields))
def test_a_key_is_read_or_refused(key: str) -> None:
    if key in REFUSED or _one_value_only(key):
        with pytest.raises(BadConfig, match=f"^{key}: found"):
            load_config({key: _other(LeadConfig.model_fields[key].default)})
        return
    of_the_run = key in RunKeys.__dataclass_fields__
    of_the_cache = key in {field.name for field in fields(PreparationKeys)}
    assert reads().get(key) or of_the_run or of_the_cache, f"{key} is accepted, but nothing reads it"


def test_no_refused_key_is_read() -> None:
    assert not [key for key in REFUSED if reads().get(key)]
