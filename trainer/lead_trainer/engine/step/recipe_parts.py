"""What the parts of a recipe make, checked as soon as it is made: a wrong result is one sentence with its part."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from lead_trainer.contract.checked_parts import BadPart
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.reports import Picture
from lead_trainer.contract.results import Named, returned, short
from lead_trainer.contract.samples import Batch, Sample
from lead_trainer.contract.step import Facts, Position
from lead_trainer.contract.validation import Validation
from lead_trainer.engine.step.optimizers import Optimizers
from lead_trainer.errors import BadConfig

if TYPE_CHECKING:
    from torchmetrics import Metric  # which takes long to load, and few recipes need


def made_model(recipe: Recipe[Any], config: Any, facts: Facts) -> torch.nn.Module:
    """Returns a recipe's model; raises BadPart for anything else."""
    model: torch.nn.Module = returned(recipe.name, "model", recipe.model(config, facts), torch.nn.Module)
    return model


def made_optimizers(recipe: Recipe[Any], model: torch.nn.Module, config: Any) -> Optimizers:
    """Returns a recipe's optimizers; raises BadPart or BadConfig unless they move what learns of the model, no more."""
    try:
        made = recipe.optimizer(model, config)
    except ValueError as error:  # torch's check of rates and groups
        raise BadConfig(f"recipe {recipe.name!r}: optimizer: {error}") from error
    found = returned(recipe.name, "optimizer", made, torch.optim.Optimizer, Mapping)
    optimizers = Optimizers(found)
    optimizers.refuse_other_parameters(model)
    return optimizers


def rate_factor(recipe: Recipe[Any], config: Any, at: Position) -> float | Mapping[str, float]:
    """Returns the factor of the learning rate, or those of parameter groups by name; raises BadPart for no numbers."""
    factor: float | Mapping[str, float] = returned(
        recipe.name, "lr_factor", recipe.lr_factor(config, at), int, float, Mapping
    )
    for one in factor.values() if isinstance(factor, Mapping) else (factor,):
        if not isinstance(one, int | float) or not (math.isfinite(one) and one >= 0):
            raise BadPart(
                f"recipe {recipe.name!r}: lr_factor returned {short(factor)} at step {at.step}, expected numbers from 0"
            )
    return factor


def made_metrics(recipe: Recipe[Any], validation: Validation[Any], config: Any, facts: Facts) -> "Mapping[str, Metric]":
    """Returns a recipe's metrics by name; raises BadPart for what is none."""
    metrics = returned(recipe.name, "validation.metrics", validation.metrics(config, facts), Mapping)
    if metrics:
        from torchmetrics import Metric

        for name, metric in metrics.items():
            returned(recipe.name, f"validation.metrics, by the name {name!r},", metric, Metric)
    return Named("context.metrics", metrics)


def collated(recipe: Recipe[Any]) -> Callable[[Sequence[Sample]], Batch]:
    """Returns a recipe's `collate`, which raises BadPart where it makes no batch."""

    def collate(samples: Sequence[Sample]) -> Batch:
        batch: Batch = returned(recipe.name, "collate", recipe.collate(samples), dict)
        return batch

    return collate


def pictures_of(recipe: Recipe[Any], config: Any, batch: Batch, outputs: Any) -> dict[str, Picture]:
    """Returns a recipe's pictures of a training batch, and its clips, by their whole tags."""
    reports, found = recipe.reports, {}
    if reports.picture is not None and (one := reports.picture(config, batch, outputs)) is not None:
        found[reports.tags.picture] = one
    several = reports.pictures(config, batch, outputs) if reports.pictures is not None else {}
    return found | dict(returned(recipe.name, "reports.pictures", several, Mapping))
