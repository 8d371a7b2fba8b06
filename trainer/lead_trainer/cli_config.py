"""`lead config`: every key of a run and of its recipe with its value, type and meaning, as the code declares them."""

import ast
import inspect
import io
import sys
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from lead_trainer.config_sources import RunKeys, read_sources
from lead_trainer.errors import BadConfig
from lead_trainer.local_run import installed_recipe, reads_carla_root
from lead_trainer.recipes.recipe import Recipe

_WORDS = {str: "text", bool: "true or false", type(None): "null"}
LOG_COLUMNS = 160  # where no terminal says how wide it is


@dataclass(frozen=True)
class Key:
    """One key as its class declares it; the meaning is the comment behind it."""

    name: str
    type: str
    meaning: str


def show_config(words: Sequence[str]) -> None:
    """Prints the keys that `recipe=…` and `preset=…` choose; raises BadConfig for any other word."""
    said = read_sources(words, [], {}).merged()
    if more := sorted(said.keys() - {"recipe", "preset"}):
        raise BadConfig(f"config: found {more[0]!r}, expected recipe=NAME and preset=NAME alone")
    recipe, preset = installed_recipe(str(said.get("recipe", RunKeys.recipe))), str(said.get("preset") or "")
    values, changed = values_of(recipe, preset), changed_by(recipe, preset)  # a wrong preset is told before any table
    console = Console(width=None if sys.stdout.isatty() else LOG_COLUMNS)
    console.print(_table("keys of every run", RunKeys, run_values(recipe, preset)))
    title = f"keys of recipe {recipe.name}" + (f" with preset {preset}, whose own are marked *" if preset else "")
    console.print(_table(title, recipe.config_model, values, changed))


def run_values(recipe: Recipe, preset: str) -> dict[str, Any]:
    """Returns the value of each key of a run; without `carla_root` where the recipe does not read it."""
    values = {name: field.default for name, field in RunKeys.__dataclass_fields__.items()}
    values |= {"recipe": recipe.name, "preset": preset}
    return {key: value for key, value in values.items() if key != "carla_root" or reads_carla_root(recipe)}


def values_of(recipe: Recipe, preset: str) -> dict[str, Any]:
    """Returns the value of each key of a recipe, a preset's in place of defaults; `required` where there is none."""
    fields = recipe.config_model.model_fields
    values = {key: "required" if field.is_required() else field.default for key, field in fields.items()}
    return {**values, **{key: getattr(recipe.config({}, preset), key) for key in changed_by(recipe, preset)}}


def changed_by(recipe: Recipe, preset: str) -> frozenset[str]:
    """Returns the keys that a preset sets, or that follow from one it sets."""
    return frozenset(recipe.config({}, preset).model_fields_set) if preset else frozenset()


def keys_of(declared: type) -> list[Key]:
    """Returns the keys in the order of their declaration; a meaning is the comment behind a key, and no other's."""
    source = inspect.cleandoc("\n" + inspect.getsource(declared))
    comments = {
        token.start[0]: token.string.lstrip("# ").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and not token.string.startswith("# fmt")
    }
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    fields = [node for node in body.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
    return [
        Key(node.target.id, _type_of(declared, node.target.id), _meaning(comments, node))
        for node in fields
        if isinstance(node.target, ast.Name) and not ast.unparse(node.annotation).startswith("ClassVar")
    ]


def _type_of(declared: type, name: str) -> str:
    """Returns a key's type as a person writes its values: `int >= 1`, `list of text`, `ring or process`."""
    if issubclass(declared, BaseModel):
        field = declared.model_fields[name]
        return f"{_plain(field.annotation)} {' and '.join(_bounds(field.metadata))}".strip()
    return _plain(get_type_hints(declared)[name])


def _bounds(metadata: Sequence[Any]) -> list[str]:
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    return [f"{sign} {bound:g}" for one in metadata for name, sign in signs.items()
            if (bound := getattr(one, name, None)) is not None]  # fmt: skip


def _plain(annotation: Any) -> str:
    inner = get_args(annotation)
    if get_origin(annotation) is Literal:
        return " or ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in inner)
    if get_origin(annotation) is tuple:
        return f"list of {_plain(inner[0])}"
    if inner:
        return " or ".join(_plain(part) for part in inner)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "keys"
    return _WORDS.get(annotation) or str(annotation.__name__)


def _meaning(comments: dict[int, str], node: ast.AnnAssign) -> str:
    lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
    return " ".join(comments[line] for line in lines if line in comments)


def _table(title: str, declared: type, values: dict[str, Any], changed: frozenset[str] = frozenset()) -> Table:
    table = Table("key", "value", "type", "meaning", title=title, title_justify="left")
    for key in keys_of(declared):
        if key.name not in values:
            continue
        value = values[key.name]
        text = "" if value == "" else str(value if not hasattr(value, "model_dump") else value.model_dump())
        table.add_row(f"{key.name}{'*' if key.name in changed else ''}", _escaped(text), _escaped(key.type),
                      _escaped(key.meaning))  # fmt: skip
    return table


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")
