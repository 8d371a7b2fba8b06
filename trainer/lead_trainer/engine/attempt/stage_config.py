"""The config of a stage: what its job names, with the seed and the epochs that the stage has."""

from typing import Any

from lead_protocol.job import TrainJob
from lead_trainer.contract.recipe import Recipe


def resolve_config(recipe: Recipe[Any], job: TrainJob) -> Any:
    """Returns the recipe's config of a job; seed and epochs are the stage's, whatever the recipe keys are."""
    return recipe.config({**job.config, "seed": job.seed, "epochs": job.epochs}, job.preset)
