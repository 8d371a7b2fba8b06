"""The facts of a run's data as every rank and every later attempt has them: JSON values, computed once."""

import json
from collections.abc import Mapping
from typing import Any

from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.results import Named, returned
from lead_trainer.contract.samples import Caches
from lead_trainer.contract.step import Facts
from lead_trainer.errors import BadConfig


def computed_facts(recipe: Recipe[Any], config: Any, caches: Caches) -> Facts:
    """Returns what the recipe knows of its data, as a checkpoint will give it back: tuples are lists, keys are texts.

    Raises BadConfig for what is no JSON value.
    """
    return known_facts(recipe, recipe.facts(config, caches))


def known_facts(recipe: Recipe[Any], facts: Any, part: str = "facts") -> Facts:
    """Returns facts as a checkpoint gives them back; raises BadPart for no mapping, BadConfig for no JSON values."""
    returned(recipe.name, part, facts, Mapping)
    try:
        return Named(f"facts of recipe {recipe.name!r}", json.loads(json.dumps(dict(facts), allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise BadConfig(
            f"recipe {recipe.name}: its facts are no JSON values ({error}); give numbers, texts, lists and mappings, "
            "such as `array.tolist()`"
        ) from error
