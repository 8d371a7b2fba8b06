"""How values become a recipe's config: named YAML files, a key's second spelling, and errors that a user can act upon.

The YAML files lie in the folder `presets` of the recipe's package. Called by the recipes' own `config_values`; it reads
neither environment nor command line.
"""

import difflib
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import yaml
from pydantic import ValidationError

from lead_trainer.errors import BadConfig
from lead_trainer.recipes.recipe import ConfigT


def names_in(package: str) -> list[str]:
    """Returns the names of a recipe's presets, sorted; `package` is the recipe's, dotted."""
    return sorted(
        entry.name.removesuffix(".yaml") for entry in _folder(package).iterdir() if entry.name[-5:] == ".yaml"
    )


def values_in(package: str, name: str) -> dict[str, Any]:
    """Returns the keys a preset sets; raises BadConfig with the near matches if there is none of that name."""
    names = names_in(package)
    if name not in names:
        raise BadConfig(f"preset: found {name!r}, expected one of {', '.join(names)}{near_matches(name, names)}")
    return dict(yaml.safe_load((_folder(package) / f"{name}.yaml").read_text(encoding="utf-8")) or {})


def checked(
    model: type[ConfigT],
    base: Mapping[str, Any],
    values: Mapping[str, Any],
    spellings: Mapping[str, str],
    own_words: Callable[[str, Sequence[str]], str] = lambda kind, path: "",
) -> ConfigT:
    """Returns defaults < `base` < `values`, validated; raises BadConfig naming every bad key.

    `spellings` are second words for keys. `own_words` gets pydantic's name of an error and the path of the key, and
    returns what the recipe says about it, empty where the usual sentence will do.
    """
    twice = [key for key in values if spellings.get(key) in values]
    if twice:
        raise BadConfig(f"{spellings[twice[0]]} is given twice, once spelled {twice[0]}; keep one")
    known = [*model.model_fields, *spellings]
    try:
        return model.model_validate({**base, **{spellings.get(key, key): value for key, value in values.items()}})
    except ValidationError as error:
        details = [(detail, [str(part) for part in detail["loc"]]) for detail in error.errors()]
        said = [own_words(detail["type"], path) or _sentence(detail, path, known) for detail, path in details]
        raise BadConfig("; ".join(said)) from error


def as_words(values: Mapping[str, Any]) -> str:
    """Returns keys as the words of a command line, quoted for a shell."""
    return " ".join(shlex.quote(f"{key}={value if isinstance(value, str) else json.dumps(value)}")
                    for key, value in values.items())  # fmt: skip


def near_matches(name: str, names: Sequence[str]) -> str:
    """Returns the end of an error's sentence that asks for the names most like `name`, empty where none is near."""
    near = difflib.get_close_matches(name, names, n=2)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _sentence(detail: Any, path: Sequence[str], known: Sequence[str]) -> str:
    """Returns one pydantic error as a sentence with key, found, expected and remedy."""
    key, expected = ".".join(path), str(detail.get("ctx", {}).get("expected", ""))
    if detail["type"] == "extra_forbidden":
        return f"{key}: unknown key{near_matches(key, known)}"
    if detail["type"] == "literal_error" and expected in ("True", "False", "0", "1"):
        return f"{key}: found {detail['input']!r}, but this recipe supports {expected} only; remove the key"
    if not path:
        return str(detail["msg"]).removeprefix("Value error, ")
    return f"{key}: found {detail['input']!r}; {detail['msg'][0].lower()}{detail['msg'][1:]}"


def _folder(package: str) -> Traversable:
    return files(package) / "presets"
