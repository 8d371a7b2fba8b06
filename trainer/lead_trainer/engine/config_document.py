"""What `config.json` holds: the resolved config, in the recipe's own words where it has some."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel

from lead_trainer.recipes.recipe import Recipe


@runtime_checkable
class WritesConfigJson(Protocol):
    """A recipe whose `config.json` others read too, and so holds more than its keys."""

    def config_json(self, config: Any) -> Mapping[str, Any]:
        """Returns the document for a resolved config."""

    def from_config_json(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the keys that a document sets."""


def config_document(recipe: Recipe, config: BaseModel) -> Mapping[str, Any]:
    """Returns the JSON document of a resolved config."""
    if isinstance(recipe, WritesConfigJson):
        return recipe.config_json(config)
    return config.model_dump(mode="json")


def keys_of_document(recipe: Recipe, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the recipe's keys that a `config.json` sets."""
    if isinstance(recipe, WritesConfigJson):
        return recipe.from_config_json(document)
    return document
