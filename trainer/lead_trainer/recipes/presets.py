"""The named YAML files of a recipe, which lie in the folder `presets` of its package, and what a name comes near to."""

import difflib
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import yaml

from lead_trainer.errors import BadConfig


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


def near_matches(name: str, names: Sequence[str]) -> str:
    """Returns the end of an error's sentence that asks for the names most like `name`, empty where none is near."""
    near = difflib.get_close_matches(name, names, n=2)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _folder(package: str) -> Traversable:
    return files(package) / "presets"
