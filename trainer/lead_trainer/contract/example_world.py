"""A small generated raw tree of a recipe: what `lead example-data` writes.

An entry point of the group `lead.example_worlds`, under its recipe's name, so that it loads without torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from lead_trainer.contract.checked_parts import checked_parts
from lead_trainer.contract.config_values import near_matches
from lead_trainer.errors import BadConfig

GROUP = "lead.example_worlds"

Progress = Callable[[int, int], None]  # of how many pieces, how many are made


@checked_parts
@dataclass(frozen=True, kw_only=True)
class ExampleWorld:
    """Writes the same tree for the same numbers, and finishes what an interrupted call has left."""

    numbers: Mapping[str, int]  # what a person may choose, with the defaults
    describe: Callable[[Mapping[str, int]], str]  # what these numbers make
    to_folder: Callable[[Path, Mapping[str, int], Progress], str]  # returns what was written, for people
    to_store: Callable[[Any, str, Mapping[str, int], Progress], str] | None = None  # None: a folder is uploaded


def example_world(recipe: str) -> ExampleWorld:
    """Returns the example world of a recipe; raises BadConfig with the near matches where none is installed."""
    names = sorted({entry.name for entry in entry_points(group=GROUP)})
    for entry in entry_points(group=GROUP):
        if entry.name == recipe:
            world = entry.load()
            if not isinstance(world, ExampleWorld):
                raise BadConfig(f"example world of {recipe!r}: {entry.value} is a {type(world).__name__}, expected an "
                                "ExampleWorld")  # fmt: skip
            return world
    raise BadConfig(f"recipe: found {recipe!r}, expected one with example data: {', '.join(names)}"
                    f"{near_matches(recipe, names)}")  # fmt: skip
