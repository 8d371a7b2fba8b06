"""The recipes that are installed: entry points of the group `lead.recipes`, ours and anybody's."""

import difflib
from importlib.metadata import entry_points
from typing import Any

from lead_trainer.contract.recipe import Recipe
from lead_trainer.errors import NoSuchRecipe

GROUP = "lead.recipes"


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
            recipe = entry.load()
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
