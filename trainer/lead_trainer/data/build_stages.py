"""Stages of a cache's build: what a preparation offers, and what those that are complete have made.

`spec.build.stages` of a DatasetCache gives a stage pods of its own, for example the only ones with a GPU. A stage makes
some fields of every sample. Whoever makes the record takes what is there and makes the rest, so that a cache built in
stages and one built at once are the same bytes.
"""

import difflib
from collections.abc import Mapping
from typing import Any

from lead_protocol.job import BuildJob
from lead_trainer.contract.preparation import Fields
from lead_trainer.contract.raw_data import SampleKey, SourceTree
from lead_trainer.contract.recipe import Recipe
from lead_trainer.data.preparation_results import config_keys
from lead_trainer.data.staged_tree import StagedTree
from lead_trainer.errors import BadConfig


def made_by(tree: SourceTree, stage: str, sample: SampleKey) -> Fields | None:
    """Returns what an earlier stage of the build made of a sample, None where that is still to be made.

    Raises BadData where what is there is damaged.
    """
    return tree.made(stage, sample) if isinstance(tree, StagedTree) else None


def check_stages(job: BuildJob, recipe: Recipe[Any]) -> None:
    """Raises BadConfig naming the first stage of a build that its recipe does not offer with this config."""
    offered = offered_stages(recipe, job.config)
    for stage in job.stages:
        if stage not in offered:
            near = difflib.get_close_matches(stage, offered, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else "remove the stage"
            known = ", ".join(offered) or "no stage, as the build does all its work at once"
            raise BadConfig(
                f"spec.build.stages: found {stage!r}; recipe {job.recipe} offers {known} with this config; {remedy}"
            )


def offered_stages(recipe: Recipe[Any], config: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the stages of a recipe's preparation with a config as the user wrote it."""
    return tuple(recipe.required_preparation.build_stages(config_keys(recipe, config)))
