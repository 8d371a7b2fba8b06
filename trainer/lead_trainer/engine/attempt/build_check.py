"""What can be wrong with a cache's spec without any data: everything at once, before the first file is read."""

from collections.abc import Callable, Iterator
from typing import Any

from lead_protocol.job import BuildJob
from lead_trainer.contract.recipe import Recipe
from lead_trainer.data.build_stages import check_stages
from lead_trainer.data.plain_scan import known_collections
from lead_trainer.data.preparation_results import config_keys
from lead_trainer.engine.attempt.pod_config import refuse_places
from lead_trainer.errors import BadConfig


def check_build(job: BuildJob, recipe: Recipe[Any]) -> None:
    """Raises BadConfig naming every mistake of a build's config, collections and stages that needs no data."""
    if faults := list(dict.fromkeys(_faults(job, recipe))):  # stages are asked of the config: its mistake comes again
        raise BadConfig("; ".join(faults))


def _faults(job: BuildJob, recipe: Recipe[Any]) -> Iterator[str]:
    checks: tuple[Callable[[BuildJob, Recipe[Any]], object], ...] = (refuse_places, _keys, _collections, check_stages)
    for check in checks:
        try:
            check(job, recipe)
        except BadConfig as error:
            yield str(error)


def _keys(job: BuildJob, recipe: Recipe[Any]) -> None:
    config_keys(recipe, job.config)


def _collections(job: BuildJob, recipe: Recipe[Any]) -> None:
    if known := recipe.required_preparation.all_collections():
        known_collections(job.collections, known)
