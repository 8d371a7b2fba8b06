"""Whose `config.json` it is: of which recipe, where it is not of the one that is asked."""

from collections.abc import Mapping
from typing import Any

from lead_trainer.contract.installed import load_recipe, other_recipes
from lead_trainer.contract.recipe import Recipe
from lead_trainer.errors import BadConfig


def other_recipe(name: str, document: Mapping[str, Any]) -> str:
    """Returns the installed recipe that accepts a document which recipe `name` refuses, empty for none."""
    if not document or _accepts(load_recipe(name), document):
        return ""
    return next((other.name for other in other_recipes(name) if _accepts(other, document)), "")


def recipes_of(document: Mapping[str, Any]) -> list[str]:
    """Returns the installed recipes that accept a document."""
    return [recipe.name for recipe in other_recipes("") if document and _accepts(recipe, document)]


def _accepts(recipe: Recipe[Any], document: Mapping[str, Any]) -> bool:
    try:
        recipe.config(recipe.keys.from_document(document))
    except BadConfig:
        return False
    return True
