"""`lead evaluate`: a checkpoint measured on a split, by its recipe's benchmark, or by the metrics of its validation.

The weights' config is read from beside them; arguments on the command line win, for example another root.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from lead_protocol.store.folder import FolderStore
from lead_trainer.contract.benchmark import Evaluated
from lead_trainer.contract.installed import recipe_names
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.training_keys import key_names
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.engine.attempt.given import Attempt
from lead_trainer.engine.attempt.location import RunLocation
from lead_trainer.engine.attempt.trials import validation_of_weights
from lead_trainer.engine.group.ddp import Group
from lead_trainer.engine.group.stop import StopFlag
from lead_trainer.engine.worker import device_of
from lead_trainer.errors import BadConfig
from lead_trainer.local.config_sources import read_config_json, read_sources, resolve
from lead_trainer.local.foreign_document import recipes_of
from lead_trainer.local.job import build_cache, cache_store, dataset_runs, local_job
from lead_trainer.local.named_view import config_beside
from lead_trainer.local.run import LocalRun, installed_recipe
from lead_trainer.recipes.local_runs import collections_of
from lead_trainer.report.console import open_log
from lead_trainer.weights_file import read_weights_file
from lead_trainer.world import World

VALIDATION_SPLIT = "val"
LOG_COLUMNS = 160  # without a terminal


def evaluate_checkpoint(
    weights: Path, arguments: Sequence[str], split: str, submission: Path | None, environ: Mapping[str, str]
) -> Any:
    """Measures weights on a split and prints what was found; raises BadConfig or BadData.

    Returns what the recipe's benchmark returns, or the metrics of its validation by name.
    """
    open_log()
    if not weights.is_file():
        raise BadConfig(f"evaluate: there is no file {weights}; name a checkpoint's weights")
    run = run_of_weights(weights, arguments)
    benchmark = run.recipe.benchmark
    splits = (VALIDATION_SPLIT,) if benchmark is None else benchmark.splits
    if split not in splits:
        raise BadConfig(f"--split: found {split}, expected {' or '.join(splits)}: those of recipe {run.recipe.name}")
    if benchmark is None:
        if submission is not None:
            raise BadConfig(f"--submission: recipe {run.recipe.name} has no challenge; remove it")
        return validated(run, weights, environ)
    return benchmark.measure(
        Evaluated(
            config=run.config,
            weights=weights,
            model=model_with(run, weights),
            split=split,
            submission=submission,
            caches=lambda collections: caches_of(run, collections, environ),
        )
    )


def run_of_weights(weights: Path, arguments: Sequence[str]) -> LocalRun:
    """Returns the run that weights came from, by the config beside them, with what the arguments change."""
    path, given = config_beside(weights), read_sources(arguments, [], {}).merged()
    if not path.is_file():
        raise BadConfig(f"evaluate: there is no {path}; weights are evaluated with the config they were trained with")
    document = read_config_json(path)
    recipe = _recipe_of(document, str(given.pop("recipe", "")), path)
    resolved = resolve(recipe.keys.respell(given), key_names(recipe.config_model))
    values = {**recipe.keys.from_document(document), **resolved.recipe}
    return LocalRun(resolved.run, recipe, values, recipe.config(values))


def _recipe_of(document: Mapping[str, Any], named: str, path: Path) -> Recipe[Any]:
    """Returns the recipe that was named, or the one that a config is of; raises BadConfig unless there is just one."""
    if named:
        return installed_recipe(named)
    found = recipes_of(document)
    if len(found) == 1:
        return installed_recipe(found[0])
    known = (
        f"of {' and of '.join(found)}" if found else f"of none of the installed recipes ({', '.join(recipe_names())})"
    )
    raise BadConfig(f"evaluate: {path} is a config {known}; set the recipe of these weights: recipe=NAME")


def model_with(run: LocalRun, weights: Path) -> torch.nn.Module:
    """Returns the recipe's model with weights, in eval mode, on this machine's device."""
    with_no_others = run.config.model_copy(update=dict.fromkeys(run.recipe.keys.weights, ""))
    model = run.recipe.model(with_no_others, {})
    run.recipe.load_initial_weights(model, run.config, {}, read_weights_file(weights, "evaluate"))
    return model.eval().to(device_of(World()))


def caches_of(run: LocalRun, collections: Sequence[str], environ: Mapping[str, str]) -> dict[str, CacheReader]:
    """Opens the run's caches that hold collections, else some of these alone; builds what is missing.

    Empty for a config that needs no data.
    """
    store = cache_store(run, environ)
    if store is None:
        return {}
    known = collections_of(run.recipe, run.config)
    others = () if set(collections) <= set(known) else tuple(collections)
    return {name: CacheReader(store, build_cache(part, store, others)) for name, part in dataset_runs(run).items()}


def validated(run: LocalRun, weights: Path, environ: Mapping[str, str]) -> dict[str, float]:
    """Runs the recipe's validation on weights, prints its metrics and returns them by name."""
    caches, group = cache_store(run, environ), Group(World(), device_of(World()))
    with TemporaryDirectory(prefix="lead-evaluate-") as scratch:
        store = FolderStore(Path(scratch) / "store")
        job = local_job(run, store, caches, processes=1)
        location = RunLocation(store, Path(scratch), initial_weights=weights, dataset_store=caches)
        attempt = Attempt(
            job=job, location=location, group=group, stop=StopFlag(), recipe=run.recipe, config=run.config
        )
        found = validation_of_weights(attempt)
    if found is None:
        next_command = run.recipe.reports.next_command
        chosen = {"recipe": run.recipe.name, "preset": ""}
        hint = next_command(run.config, weights, weights.parent, chosen) if next_command is not None else ""
        raise BadConfig(
            f"evaluate: the config of {weights} has no validation split; name one by its keys" + (hint and f"; {hint}")
        )
    table = Table("metric", "value", title=f"{VALIDATION_SPLIT}: {weights}", title_justify="left")
    for name, value in sorted(found.items()):
        table.add_row(name, f"{value:.6g}")
    Console(width=None if sys.stdout.isatty() else LOG_COLUMNS).print(table)
    return found
