"""The facts of a run's data as every rank and every later attempt has them: JSON values, computed once."""

import json
from typing import Any

from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.samples import Caches
from lead_trainer.contract.step import Facts
from lead_trainer.errors import BadConfig


def computed_facts(recipe: Recipe[Any], config: Any, caches: Caches) -> Facts:
    """Returns what the recipe knows of its data, as a checkpoint will give it back: tuples are lists, keys are texts.

    Raises BadConfig for what is no JSON value.
    """
    try:
        facts: Facts = json.loads(json.dumps(dict(recipe.facts(config, caches)), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise BadConfig(
            f"recipe {recipe.name}: its facts are no JSON values ({error}); give numbers, texts, lists and mappings, "
            "such as `array.tolist()`"
        ) from error
    return facts
