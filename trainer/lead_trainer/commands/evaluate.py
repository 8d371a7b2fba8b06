"""`lead evaluate`: a checkpoint measured on a split: the metrics of its validation, and its recipe's own benchmark.

The weights' config is read from beside them; arguments on the command line win, for example another root. If the run
lies there too, each metric is compared with the logged one, to the bit. A report is written beside the weights.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import structlog
import torch
from rich.console import Console

from lead_protocol import environment
from lead_protocol.manifests import sha256_of_file
from lead_protocol.store.folder import FolderStore
from lead_trainer.contract.benchmark import Evaluated
from lead_trainer.contract.installed import recipe_names
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.reports import Picture
from lead_trainer.contract.training_keys import key_names, value_at
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
from lead_trainer.local.trained_weights import checkpoint_of
from lead_trainer.recipes.backbone_file import STORE_MARK
from lead_trainer.recipes.local_runs import collections_of
from lead_trainer.report.console import open_log
from lead_trainer.report.evaluation import EvaluationReport, Trained, without_prefix, write_report
from lead_trainer.weights_file import read_weights_file
from lead_trainer.world import World

VALIDATION_SPLIT = "val"
LOG_COLUMNS = 160  # without a terminal

log = structlog.get_logger(__name__)


def evaluate_checkpoint(
    weights: Path, arguments: Sequence[str], split: str, submission: Path | None, environ: Mapping[str, str]
) -> Any:
    """Measures weights on a split, prints what was found and writes the report; raises BadConfig or BadData.

    Returns what the recipe's benchmark returns, or the metrics of its validation by name.
    """
    open_log()
    if not weights.is_file():
        raise BadConfig(f"evaluate: there is no file {weights}; name a checkpoint's weights")
    run = run_of_weights(weights, arguments)
    log.info("evaluating", weights=str(weights), recipe=run.recipe.name, split=split, device=str(device_of(World())))
    benchmark = run.recipe.benchmark
    splits = (VALIDATION_SPLIT,) if benchmark is None else benchmark.splits
    if split not in splits:
        raise BadConfig(f"--split: found {split}, expected {' or '.join(splits)}: those of recipe {run.recipe.name}")
    if benchmark is None and submission is not None:
        raise BadConfig(f"--submission: recipe {run.recipe.name} has no challenge; remove it")
    sha256 = sha256_of_file(weights)
    trained = checkpoint_of(weights, sha256)
    # A benchmark measures by itself; what its run logged is measured as well where there is something to compare with.
    wanted = benchmark is None or (split == VALIDATION_SPLIT and trained is not None)
    validation = validated(run, weights, environ) if wanted else Measured()
    report = EvaluationReport(
        weights=weights.name,
        sha256=sha256,
        recipe=run.recipe.name,
        split=split,
        changed=[one for one in arguments if not one.startswith("recipe=")],
        datasets=validation.datasets,
        metrics=validation.metrics,
        trained=None if trained is None else Trained.of(trained),
        config=run.config.model_dump(mode="json"),
    )
    console = Console(width=None if sys.stdout.isatty() else LOG_COLUMNS)
    if validation.metrics:
        console.print(report.table())
        console.print(report.verdict(), soft_wrap=True)
    found = None if benchmark is None else benchmark.measure(
        Evaluated(
            config=run.config,
            weights=weights,
            model=model_with(run, weights),
            split=split,
            submission=submission,
            caches=lambda collections: caches_of(run, collections, environ),
        )
    )  # fmt: skip
    files = write_report(report, found, validation.pictures, weights.parent)
    print(f"report: {' '.join(map(str, files))}")
    return validation.metrics if benchmark is None else found


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


@dataclass(frozen=True)
class Measured:
    """What a validation found, empty where the recipe's benchmark measures by itself."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    datasets: Sequence[str] = ()


def without_absent_files(run: LocalRun, environ: Mapping[str, str]) -> LocalRun:
    """Returns the run without first weights that are not on this machine: those given take their place.

    A frozen network of a loss is lost with them, and its term of the loss.
    """
    absent = []
    for key in sorted(run.recipe.keys.weights):
        source = str(value_at(run.config.model_dump(), key) or "")
        if source.startswith(STORE_MARK):
            is_here = bool(environ.get(environment.STORE_URL))
        else:
            is_here = not source or Path(source).is_file()
        if not is_here:
            log.warning("a file of weights is not on this machine and left out", key=key, file=source)
            absent.append(key)
    if not absent:
        return run
    values = {**run.values, **dict.fromkeys(absent, "")}
    return replace(run, values=values, config=run.recipe.config(values))


def validated(run: LocalRun, weights: Path, environ: Mapping[str, str]) -> Measured:
    """Runs the recipe's validation on weights; raises BadConfig where the config has no split and no benchmark."""
    run = without_absent_files(run, environ)
    caches, group = cache_store(run, environ), Group(World(), device_of(World()))
    with TemporaryDirectory(prefix="lead-evaluate-") as scratch:
        store = FolderStore(Path(scratch) / "store")
        job = local_job(run, store, caches, processes=1)
        location = RunLocation(store, Path(scratch), initial_weights=weights, dataset_store=caches)
        attempt = Attempt(
            job=job, location=location, group=group, stop=StopFlag(), recipe=run.recipe, config=run.config
        )
        found = validation_of_weights(attempt)
    if found is None and run.recipe.benchmark is None:
        next_command = run.recipe.reports.next_command
        chosen = {"recipe": run.recipe.name, "preset": ""}
        hint = next_command(run.config, weights, weights.parent, chosen) if next_command is not None else ""
        raise BadConfig(
            f"evaluate: the config of {weights} has no validation split; name one by its keys" + (hint and f"; {hint}")
        )
    if found is None:
        return Measured()
    return Measured(without_prefix(found.values), found.pictures, [source.digest for source in job.datasets])
