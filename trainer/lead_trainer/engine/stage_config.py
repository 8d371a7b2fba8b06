"""The config of a stage: what its job names, with the seed and the epochs that the stage has."""

from typing import Any

from lead_protocol.job import TrainJob
from lead_trainer.recipes.recipe import Recipe


def resolve_config(recipe: Recipe, job: TrainJob) -> Any:
    """Returns the recipe's config of a job; seed and epochs are the stage's, whatever the recipe keys say."""
    stage = {"seed": job.seed, "epochs": job.epochs}
    return recipe.config(
        {**job.config, **{key: value for key, value in stage.items() if key in recipe.config_model.model_fields}},
        job.preset,
    )
