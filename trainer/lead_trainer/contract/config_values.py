"""How values become a recipe's config: presets, a key's second spelling, and errors that a user can act upon.

Presets are named mappings, or YAML files in the folder `presets` of a package. Nothing here reads environment or
command line.
"""

import difflib
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from lead_trainer.contract.training_keys import TrainingKeys, key_name, key_names, section_of
from lead_trainer.errors import BadConfig

ModelT = TypeVar("ModelT", bound=BaseModel)
Presets = str | Mapping[str, Mapping[str, Any]]  # a dotted package, or the presets themselves


def names_in(presets: Presets) -> list[str]:
    """Returns the names of presets, sorted."""
    if not isinstance(presets, str):
        return sorted(presets)
    return sorted(
        entry.name.removesuffix(".yaml") for entry in _folder(presets).iterdir() if entry.name[-5:] == ".yaml"
    )


def values_in(presets: Presets, name: str) -> dict[str, Any]:
    """Returns the keys a preset sets; raises BadConfig with the near matches if there is none of that name."""
    names = names_in(presets)
    if name not in names:
        known = f"expected one of {', '.join(names)}" if names else "but this recipe has none; remove the key"
        raise BadConfig(f"preset: found {name!r}, {known}{near_matches(name, names)}")
    if not isinstance(presets, str):
        return dict(presets[name])
    return dict(yaml.safe_load((_folder(presets) / f"{name}.yaml").read_text(encoding="utf-8")) or {})


def checked(
    model: type[ModelT],
    base: Mapping[str, Any],
    values: Mapping[str, Any],
    spellings: Mapping[str, str],
    explain: Callable[[str, Sequence[str]], str] = lambda kind, path: "",
) -> ModelT:
    """Returns defaults < `base` < `values`, validated, sections key by key; raises BadConfig naming every bad key.

    `spellings` are aliases of keys. `explain` gets pydantic's name of an error and the path of the key, and
    returns the recipe's explanation, empty where the usual sentence will do.
    """
    twice = [key for key in values if spellings.get(key) in values]
    if twice:
        raise BadConfig(f"{spellings[twice[0]]} is given twice, once spelled {twice[0]}; keep one")
    try:
        found = model.model_validate(_over(base, {spellings.get(key, key): value for key, value in values.items()}))
    except ValidationError as error:
        details = [(detail, [str(part) for part in detail["loc"]]) for detail in error.errors()]
        given = [
            explain(detail["type"], path)
            or _several(detail, path, model)
            or _sentence(detail, path, _known(model, path, spellings))
            for detail, path in details
        ]
        raise BadConfig("; ".join(given)) from error
    if isinstance(found, TrainingKeys):
        _refuse_what_the_engine_cannot_use(found)
    return found


def _refuse_what_the_engine_cannot_use(config: TrainingKeys) -> None:
    """Raises BadConfig for a value out of the engine's bounds, where a recipe declares a key again without them."""
    try:
        TrainingKeys.model_validate({name: getattr(config, name) for name in TrainingKeys.model_fields})
    except ValidationError as error:
        named = [(detail, key_name(type(config), str(detail["loc"][0]))) for detail in error.errors()]
        raise BadConfig("; ".join(_sentence(detail, [key], ()) for detail, key in named)) from error


def _known(model: type[BaseModel], path: Sequence[str], spellings: Mapping[str, str]) -> list[str]:
    """Returns the keys that exist at the last position of a path."""
    section = section_of(model, path[:-1])
    return [] if section is None else [*key_names(section), *(spellings if len(path) == 1 else ())]


def as_arguments(values: Mapping[str, Any]) -> str:
    """Returns keys as arguments of a command line, quoted for a shell."""
    return " ".join(shlex.quote(f"{key}={value if isinstance(value, str) else json.dumps(value)}")
                    for key, value in values.items())  # fmt: skip


def near_matches(name: str, names: Sequence[str]) -> str:
    """Returns the end of an error's sentence that asks for the names most like `name`, empty where none is near."""
    near = difflib.get_close_matches(name, names, n=2)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _over(base: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `base` with `values` in its place, mappings key by key."""
    both = {key: (base[key], value) for key, value in values.items() if isinstance(base.get(key), Mapping)}
    merged = {key: _over(low, high) for key, (low, high) in both.items() if isinstance(high, Mapping)}
    return {**base, **values, **merged}


def _several(detail: Any, path: Sequence[str], model: type[BaseModel]) -> str:
    """Returns what is wrong with one value where a key takes several, such as 128 for a height and a width."""
    section = section_of(model, path[:-1]) if path else None
    names = {} if section is None else {field.alias or name: field for name, field in section.model_fields.items()}
    usual = names[path[-1]].default if path and path[-1] in names else None
    if detail["type"] not in ("tuple_type", "list_type") or not isinstance(usual, tuple) or not usual:
        return ""
    found = detail["input"]
    example = [found] * len(usual) if isinstance(found, int | float) else list(usual)
    return f"{'.'.join(path)}: found {found!r}, expected {len(usual)} values; write for example {example}"


def _sentence(detail: Any, path: Sequence[str], known: Sequence[str]) -> str:
    """Returns one pydantic error as a sentence with key, found, expected and remedy."""
    key, expected = ".".join(path), str(detail.get("ctx", {}).get("expected", ""))
    if detail["type"] == "extra_forbidden":
        return f"{key}: unknown key{near_matches(path[-1], known)}"
    if detail["type"] == "literal_error" and expected in ("True", "False", "0", "1"):
        return f"{key}: found {detail['input']!r}, but this recipe supports {expected} only; remove the key"
    if not path:
        return str(detail["msg"]).removeprefix("Value error, ")
    return f"{key}: found {detail['input']!r}; {detail['msg'][0].lower()}{detail['msg'][1:]}"


def _folder(package: str) -> Traversable:
    return files(package) / "presets"
