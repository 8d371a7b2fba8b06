"""Weights on a split: ADE, FDE and a challenge's metrics beside those of the baselines, and the challenge's file.

What `lead evaluate` does with weights of recipe `distill`.
"""

import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from lead_trainer.contract.benchmark import Evaluated
from lead_trainer.contract.samples import Batch, Samples, stacked
from lead_trainer.data.ordered_pool import ordered_map
from lead_trainer.metrics.forecasting import REPORTED_K, Forecast, metrics_at
from lead_trainer.metrics.totals import Totals, by_class
from lead_trainer.recipes.distill.benchmarks.challenges import Challenge, baseline_forecasts, challenge_of
from lead_trainer.recipes.distill.benchmarks.evaluation import forecast_of, truth_of
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.distill.modes import collection_of, mode_of, only_cache

MODEL = "model"
LOADER_THREADS = 2
LOG_COLUMNS = 160  # without a terminal


@dataclass
class Results:
    """What was measured: totals by forecaster, the model's by class, and the submission's rows."""

    ks: tuple[int, ...]
    overall: dict[str, Totals] = field(default_factory=dict)
    classes: Totals = field(default_factory=Totals)
    rows: list[Any] = field(default_factory=list)
    agents: int = 0  # of a benchmark, else clips

    def summary(self) -> dict[str, Any]:
        """Returns what a report holds: the means of each forecaster, and the model's by class."""
        means = {name: dict(totals.means()) for name, totals in self.overall.items()}
        return {"agents": self.agents, "forecasters": means, "by_class": dict(self.classes.means())}

    def markdown(self) -> str:
        """Returns the part of a report's page that shows each forecaster."""
        means = {name: totals.means() for name, totals in self.overall.items()}
        head = [f"| metric | {' | '.join(means)} |", "|---|" + "---|" * len(means)]
        rows = [
            f"| {tag} | {' | '.join(_number(means[name].get(tag, math.nan)) for name in means)} |"
            for tag in means.get(MODEL, {})
        ]
        return "\n".join(["## Beside the baselines", "", f"{self.agents} agents or clips.", "", *head, *rows, ""])


def measured(run: Evaluated[DistillConfig]) -> Results:
    """Evaluates weights on a split, prints the tables and writes the submission; raises BadConfig or BadData."""
    config, split = run.config, run.split
    challenge = challenge_of(config)
    cache = only_cache(run.caches([collection_of(config, split)]))
    samples = mode_of(config.benchmark).samples(config, cache, split)
    batches = run.counted(_batches(config, samples), -(-len(samples.epoch_draw(0)) // config.batch_size))
    results = measure(run.model, batches, challenge, dt_s=config.horizon.dt_s)
    counted = f"{results.agents} {'agents' if challenge is not None else 'clips'}"
    show(
        results,
        f"{config.benchmark if challenge is not None else 'clips'} {split}: {run.weights}, {counted}",
        Console(width=None if sys.stdout.isatty() else LOG_COLUMNS),
    )
    if challenge is not None:
        path = run.submission or run.weights.with_name(f"{run.weights.stem}_{split}_{challenge.file_name}")
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


def _batches(config: DistillConfig, samples: Samples) -> Iterator[Batch]:
    """Yields every sample once, in order; the last batch may be smaller."""
    size = config.batch_size
    ready = []
    for sample in ordered_map(lambda index: samples.load(int(index), 0), samples.epoch_draw(0), LOADER_THREADS):
        ready.append(sample)
        if len(ready) == size:
            yield stacked(ready)
            ready = []
    if ready:
        yield stacked(ready)


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}"


def _write(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(data)
    part.replace(path)
