"""Whose `config.json` it is: of which recipe, where it is not of the one that is asked."""

from collections.abc import Mapping
from typing import Any

from lead_trainer.engine.config_document import keys_of_document
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.recipe import load_recipe, recipe_names


def other_recipe(name: str, document: Mapping[str, Any]) -> str:
    """Returns the installed recipe that accepts a document which recipe `name` refuses, empty for none."""
    if not document or _is_of(name, document):
        return ""
    return next((other for other in recipe_names() if other != name and _is_of(other, document)), "")


def _is_of(name: str, document: Mapping[str, Any]) -> bool:
    recipe = load_recipe(name)
    try:
        recipe.config(keys_of_document(recipe, document))
    except BadConfig:
        return False
    return True
