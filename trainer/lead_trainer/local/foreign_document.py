"""Whose `config.json` it is: of which recipe, where it is not of the one that is asked."""

from collections.abc import Mapping
from typing import Any

import structlog

from lead_trainer.contract.installed import load_recipe, recipe_names
from lead_trainer.errors import BadConfig

log = structlog.get_logger(__name__)


def other_recipe(name: str, document: Mapping[str, Any]) -> str:
    """Returns the installed recipe that accepts a document which recipe `name` refuses, empty for none."""
    if not document or _is_of(name, document):
        return ""
    return next((other for other in recipe_names() if other != name and _is_of(other, document)), "")


def recipes_of(document: Mapping[str, Any]) -> list[str]:
    """Returns the installed recipes that accept a document."""
    return [name for name in recipe_names() if document and _is_of(name, document)]


def _is_of(name: str, document: Mapping[str, Any]) -> bool:
    try:
        recipe = load_recipe(name)
    except Exception as error:  # somebody else's package, which is asked for nothing but its config
        log.warning("an installed recipe cannot be loaded and is left out", recipe=name, error=str(error)[:200])
        return False
    try:
        recipe.config(recipe.keys.from_document(document))
    except BadConfig:
        return False
    return True
