"""Stages of a cache's build: what a preparation offers, and what those that are complete have made.

`spec.build.stages` of a DatasetCache gives a stage pods of its own, for example the only ones with a GPU. A stage makes
some fields of every sample. Whoever makes the record takes what is there and makes the rest, so that a cache built in
stages and one built at once are the same bytes.
"""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from lead_protocol.job import BuildJob
from lead_trainer.data.staged_tree import StagedTree
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.recipe import Preparation, Recipe, SampleKey, SourceTree

Fields = Mapping[str, bytes]


@runtime_checkable
class BuildsInStages(Protocol):
    """A preparation whose work may be done in stages; of any other a build has no stages."""

    def build_stages(self, config: Mapping[str, Any]) -> Sequence[str]:
        """Returns the stages that make something with this config (what `config_keys` returned)."""

    def stage_fields(self, tree: SourceTree, config: Mapping[str, Any], stage: str, sample: SampleKey) -> Fields:
        """Returns what a stage makes of one sample: what `record` makes of it where `made_by` has nothing."""


def made_by(tree: SourceTree, stage: str, sample: SampleKey) -> Fields | None:
    """Returns what an earlier stage of the build made of a sample, None where that is still to be made.

    Raises BadData where what is there is damaged.
    """
    return tree.made(stage, sample) if isinstance(tree, StagedTree) else None


def check_stages(job: BuildJob, recipe: Recipe) -> None:
    """Raises BadConfig naming the first stage of a build that its recipe does not offer with this config."""
    offered = offered_stages(recipe.preparation, job.config)
    for stage in job.stages:
        if stage not in offered:
            near = difflib.get_close_matches(stage, offered, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else "remove the stage"
            known = ", ".join(offered) or "no stage, as the build does all its work at once"
            raise BadConfig(
                f"spec.build.stages: found {stage!r}; recipe {job.recipe} offers {known} with this config; {remedy}"
            )


def offered_stages(preparation: Preparation, config: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the stages of a preparation with a config as the user wrote it."""
    if not isinstance(preparation, BuildsInStages):
        return ()
    return tuple(preparation.build_stages(preparation.config_keys(config)))
