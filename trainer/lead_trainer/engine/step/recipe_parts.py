"""The model and the optimizers that a recipe makes, checked as soon as they are made."""

from collections.abc import Mapping
from typing import Any

import torch

from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.results import returned
from lead_trainer.contract.step import Facts
from lead_trainer.engine.step.optimizers import Optimizers


def made_model(recipe: Recipe[Any], config: Any, facts: Facts) -> torch.nn.Module:
    """Returns a recipe's model; raises BadPart for anything else."""
    model: torch.nn.Module = returned(recipe.name, "model", recipe.model(config, facts), torch.nn.Module)
    return model


def made_optimizers(recipe: Recipe[Any], model: torch.nn.Module, config: Any) -> Optimizers:
    """Returns a recipe's optimizers; raises BadPart or BadConfig unless they move what learns of the model, no more."""
    found = returned(recipe.name, "optimizer", recipe.optimizer(model, config), torch.optim.Optimizer, Mapping)
    optimizers = Optimizers(found)
    optimizers.refuse_other_parameters(model)
    return optimizers
