"""`lead evaluate`: a checkpoint on a split, its numbers beside the baselines', and a benchmark's submission file.

The weights' config is read from beside them; words on the command line win, for example another root.
"""

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from lead_trainer.config_sources import read_config_json, read_sources, resolve
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.ordered_pool import ordered_map
from lead_trainer.engine.config_document import keys_of_document
from lead_trainer.errors import BadConfig
from lead_trainer.foreign_document import other_recipe
from lead_trainer.local_job import build_cache, cache_store
from lead_trainer.local_run import LocalRun
from lead_trainer.metrics.forecasting import REPORTED_K, Forecast, metrics_at
from lead_trainer.metrics.totals import Totals, by_class
from lead_trainer.named_view import config_beside
from lead_trainer.recipes.distill.benchmarks.challenges import Challenge, baseline_forecasts, challenge_of
from lead_trainer.recipes.distill.benchmarks.evaluation import forecast_of, truth_of
from lead_trainer.recipes.distill.modes import collection_of, mode_of
from lead_trainer.recipes.local_runs import collections_of
from lead_trainer.recipes.recipe import Batch, SampleSource, load_recipe
from lead_trainer.report.console import open_log
from lead_trainer.weights_file import read_weights_file

RECIPE = "distill"  # the recipe with benchmarks
MODEL = "model"
LOADER_THREADS = 2
LOG_COLUMNS = 160  # where no terminal says how wide it is


@dataclass
class Results:
    """What was measured: totals by forecaster, the model's by class, and the submission's rows."""

    ks: tuple[int, ...]
    overall: dict[str, Totals] = field(default_factory=dict)
    classes: Totals = field(default_factory=Totals)
    rows: list[Any] = field(default_factory=list)
    agents: int = 0  # of a benchmark, else clips


def evaluate_checkpoint(
    weights: Path, words: Sequence[str], split: str, target: Path | None, environ: Mapping[str, str]
) -> Results:
    """Evaluates weights on a split, prints the tables and writes the submission; raises BadConfig or BadData."""
    open_log()
    if not weights.is_file():
        raise BadConfig(f"evaluate: there is no file {weights}; name a checkpoint's weights")
    run = _run(weights, words, environ)
    config = run.config
    challenge = challenge_of(config)
    samples = mode_of(config.benchmark).samples(config, _cache(run, split, environ), split)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = run.recipe.model(config.model_copy(update={"backbone_weights": ""}))  # it begins with no others' weights
    run.recipe.load_initial_weights(model, config, read_weights_file(weights, "evaluate"))
    results = measure(model.eval().to(device), _batches(run, samples), challenge, dt_s=config.horizon.dt_s)
    counted = f"{results.agents} {'agents' if challenge is not None else 'clips'}"
    show(
        results,
        f"{config.benchmark if challenge is not None else 'clips'} {split}: {weights}, {counted}",
        Console(width=None if sys.stdout.isatty() else LOG_COLUMNS),
    )
    if challenge is not None:
        path = target or weights.with_name(f"{weights.stem}_{split}_{challenge.file_name}")
        _write(path, challenge.file(results.rows))
        print(f"submission: {path}")
    return results


@torch.no_grad()
def measure(model: torch.nn.Module, batches: Iterator[Batch], challenge: Challenge | None, *, dt_s: float) -> Results:
    """Returns the metrics of the model and of every baseline over all batches."""
    results = Results(ks=())
    for batch in batches:
        device = next(model.parameters()).device
        predictions = model({key: value.to(device) if isinstance(value, torch.Tensor) else value
                             for key, value in batch.items()})  # fmt: skip
        forecast = forecast_of({key: predictions[key].cpu() for key in ("xy", "logits")})
        results.ks = tuple(k for k in REPORTED_K if k <= forecast.modes)
        results.agents += len(batch["speed"])
        if challenge is not None:
            results.rows += challenge.rows(forecast, batch)
        for name, one in {MODEL: forecast, **baseline_forecasts(batch, dt_s)}.items():
            values = _values(one, batch, results.ks, challenge)
            results.overall[name] = results.overall.get(name, Totals()).add(values)
            if name == MODEL and challenge is not None:
                results.classes = results.classes.add(by_class(values, batch["category"], challenge.classes))
    return results


def show(results: Results, title: str, console: Console) -> None:
    """Prints one row a forecaster, then one a class for the model; a baseline's one mode counts for every k."""
    means = {name: totals.means() for name, totals in results.overall.items()}
    tags = list(means[MODEL])
    whole = Table("metric", *means, title=title, title_justify="left")
    for tag in tags:
        whole.add_row(tag, *(_number(means[name].get(tag, math.nan)) for name in means))
    console.print(whole)
    by_name = results.classes.means()
    if not by_name:
        return
    names = sorted({tag.rpartition("/")[2] for tag in by_name})
    classes = Table("metric", *names, title="model by class", title_justify="left")
    for tag in tags:
        classes.add_row(tag, *(_number(by_name.get(f"{tag}/{name}", math.nan)) for name in names))
    console.print(classes)


def _values(
    forecast: Forecast, batch: Batch, ks: Sequence[int], challenge: Challenge | None
) -> dict[str, torch.Tensor]:
    truth = truth_of(batch)
    values: dict[str, torch.Tensor] = {}
    for k in ks:
        values |= metrics_at(forecast, truth, k)
    return {**values, **(challenge.map_metrics(forecast, batch) if challenge is not None else {})}


def _run(weights: Path, words: Sequence[str], environ: Mapping[str, str]) -> LocalRun:
    """Returns the run that the weights came from, with what the words change."""
    recipe: Any = load_recipe(RECIPE)
    resolved = resolve(
        recipe.respelled(read_sources(words, [], environ).merged()), list(recipe.config_model.model_fields)
    )
    path = config_beside(weights)
    if not path.is_file():
        raise BadConfig(f"evaluate: there is no {path}; weights are evaluated with the config they were trained with")
    document = read_config_json(path)
    _refuse_other_recipe(document, path)
    values = {**keys_of_document(recipe, document), **resolved.recipe}
    return LocalRun(resolved.run, recipe, values, recipe.config(values))


def _refuse_other_recipe(document: Mapping[str, Any], path: Path) -> None:
    """Raises BadConfig where a config that this recipe cannot read is one of another recipe."""
    if name := other_recipe(RECIPE, document):
        raise BadConfig(
            f"evaluate: {path} is of recipe {name}, but lead evaluate measures recipe {RECIPE} alone; "
            f"lead export bundles weights of recipe {name} for its own evaluation"
        )


def _cache(run: LocalRun, split: str, environ: Mapping[str, str]) -> CacheReader | None:
    """Opens the training's cache where it holds the split, else one of the split alone; builds what is missing.

    None for a config that needs no data.
    """
    store = cache_store(run, environ)
    if store is None:
        return None
    wanted = collection_of(run.config, split)
    others = () if wanted in collections_of(run.recipe, run.config) else (wanted,)
    return CacheReader(store, build_cache(run, store, others))


def _batches(run: LocalRun, samples: SampleSource) -> Iterator[Batch]:
    """Yields every sample once, in order; the last batch may be smaller."""
    size = run.config.batch_size
    ready = []
    for sample in ordered_map(lambda index: samples.load(int(index), 0), samples.epoch_draw(0), LOADER_THREADS):
        ready.append(sample)
        if len(ready) == size:
            yield run.recipe.collate(ready)
            ready = []
    if ready:
        yield run.recipe.collate(ready)


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}"


def _write(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(data)
    part.replace(path)
