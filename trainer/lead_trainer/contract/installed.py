"""The recipes that are installed: entry points of the group `lead.recipes`, ours and anybody's."""

import difflib
import traceback
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import structlog

from lead_trainer.contract.checked_parts import BadPart
from lead_trainer.contract.recipe import Recipe
from lead_trainer.errors import BadConfig, NoSuchRecipe

GROUP = "lead.recipes"
MAX_ERROR = 300  # characters of an error of somebody else's package

log = structlog.get_logger(__name__)


def recipe_names() -> list[str]:
    """Returns the names of every installed recipe."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def near_recipe(name: str) -> str:
    """Returns the installed recipe whose name is much like this one, "" for none."""
    return next(iter(difflib.get_close_matches(name, recipe_names(), n=1)), "")


def load_recipe(name: str) -> Recipe[Any]:
    """Imports and returns the recipe `name`; raises NoSuchRecipe with the near matches, BadPart for one with faults."""
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            recipe = _imported(entry)
            if not isinstance(recipe, Recipe):
                raise NoSuchRecipe(f"recipe {name!r}: {entry.value} is a {type(recipe).__name__}, expected a Recipe")
            if recipe.name != name:
                raise NoSuchRecipe(
                    f"recipe {name!r}: {entry.value} calls itself {recipe.name!r}; give the entry point that name"
                )
            return recipe
    near = near_recipe(name)
    hint = f"did you mean {near!r}?" if near else f"installed recipes: {', '.join(recipe_names()) or 'none'}"
    raise NoSuchRecipe(f"recipe {name!r} is not installed in this image; {hint}")


def other_recipes(name: str) -> Iterator[Recipe[Any]]:
    """Yields every installed recipe but `name`; one that cannot be imported is reported and left out."""
    for other in recipe_names():
        if other == name:
            continue
        try:
            yield load_recipe(other)
        except BadConfig as error:
            log.warning("an installed recipe cannot be loaded and is left out", recipe=other, error=str(error))


def _imported(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except BadConfig:
        raise
    except Exception as error:  # whatever the code of somebody else's package raises when it is imported
        if isinstance(error, ModuleNotFoundError) and entry.value.startswith(f"{__name__.partition('.')[0]}."):
            raise  # our own recipes need an extra of this package, which the command names
        last = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error}"[:MAX_ERROR]
        raise BadPart(
            f"recipe {entry.name!r}: {entry.value} cannot be imported: {text} ({last.filename}, line {last.lineno}); "
            "correct its package, or uninstall it"
        ) from error
