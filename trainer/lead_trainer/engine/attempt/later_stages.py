"""What the stages after the first would be refused for, found before the first one trains.

A later stage has keys of its own and may train on another collection of the same caches. Without this, a run of days
would end where its second stage begins.
"""

from typing import Any

from lead_protocol.job import TrainJob
from lead_trainer.contract.recipe import Recipe
from lead_trainer.engine.attempt.config_check import check_config
from lead_trainer.engine.attempt.pod_config import refuse_places
from lead_trainer.engine.attempt.stage_config import resolve_config
from lead_trainer.engine.samples.dataset import Dataset
from lead_trainer.errors import BadConfig


def check_later_stages(job: TrainJob, recipe: Recipe[Any], dataset: Dataset) -> None:
    """Raises BadConfig naming the stage whose keys the recipe refuses, or whose samples the job's caches lack."""
    for later in job.later_jobs:
        try:
            refuse_places(later, recipe)
            config = resolve_config(recipe, later)
            check_config(recipe, config, epochs=later.epochs, ranks=later.nodes * (later.procs_per_node or 1))
            recipe.samples(config, dataset.caches)
        except BadConfig as error:
            raise BadConfig(f"stage {later.stage}: {error}") from error
