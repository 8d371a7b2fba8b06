"""What a stage trains and validates on: the recipe's samples, as few as its config asks for."""

from dataclasses import dataclass, replace
from typing import Any

from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.results import returned
from lead_trainer.contract.samples import Samples
from lead_trainer.engine.samples.checked_samples import CheckedSamples
from lead_trainer.engine.samples.dataset import Dataset
from lead_trainer.engine.samples.limited_samples import LimitedSamples
from lead_trainer.errors import BadData


@dataclass(frozen=True)
class StageSamples:
    """What a stage trains and validates on."""

    training: Samples
    validation: Samples | None


def limited(recipe: Recipe[Any], config: Any, dataset: Dataset) -> StageSamples:
    """Returns what a stage trains and validates on, as few samples as the config asks for.

    Raises BadData where there is a validation split and nothing in it.
    """
    split = recipe.validation
    validation = split.samples(config, dataset.caches) if split is not None else None
    if validation is not None:
        returned(recipe.name, "validation.samples", validation, Samples)
        validation = CheckedSamples(recipe.name, "validation.samples", validation)
    if config.overfit_samples:
        few = LimitedSamples(dataset.samples, config.overfit_samples, same_draw=True)
        return StageSamples(replace(few, repeated=config.batch_size), few if split is not None else None)
    training = LimitedSamples(dataset.samples, config.max_samples) if config.max_samples else dataset.samples
    if validation is not None and not len(validation.epoch_draw(0)):
        raise BadData("the validation split holds no sample, so no epoch could be judged; add some to the dataset")
    if validation is not None and config.validation_max_samples:
        validation = LimitedSamples(validation, config.validation_max_samples)
    return StageSamples(training, validation)
