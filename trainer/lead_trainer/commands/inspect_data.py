"""`lead inspect`: inspect the data of a run, and what a fresh model computes from them.

batch   each key of a batch with its shape, type and values; writes the recipe's pictures of it below logdir
nan     loads every training sample once and names those with a value that is not finite; ends in 1 if there are any
range   the least and the greatest value of each output of a fresh model
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from lead_trainer.commands.evaluate import caches_of
from lead_trainer.contract.checked_parts import BadPart
from lead_trainer.contract.reports import picture_fault
from lead_trainer.contract.samples import Batch, Caches, Sample, Samples
from lead_trainer.contract.step import StepContext, StepOutput
from lead_trainer.data.device_batch import to_device
from lead_trainer.data.loader import on_device_of
from lead_trainer.data.ordered_pool import ordered_map
from lead_trainer.engine.loop import step_output
from lead_trainer.engine.samples.data_facts import computed_facts
from lead_trainer.engine.samples.dataset import checked_samples
from lead_trainer.engine.step.helper_networks import frozen_helpers
from lead_trainer.engine.step.recipe_parts import collated, made_model, made_optimizers, pictures_of
from lead_trainer.engine.step.seeding import seed_process
from lead_trainer.engine.worker import device_of
from lead_trainer.errors import BadData
from lead_trainer.local.run import LocalRun, local_run
from lead_trainer.recipes.local_runs import collections_of
from lead_trainer.report.console import open_log
from lead_trainer.report.picture_files import PictureFiles
from lead_trainer.terminal_text import printable
from lead_trainer.world import World

LOG_COLUMNS = 160  # without a terminal


@dataclass(frozen=True)
class RunData:
    """What a run trains on."""

    run: LocalRun
    caches: Caches
    samples: Samples


def data_of(command: str, arguments: Sequence[str], config: Sequence[Path], environ: Mapping[str, str]) -> RunData:
    """Opens a run's training samples, its cache built where it is missing; raises BadConfig and BadData."""
    named = any(argument.startswith("logdir=") for argument in arguments)
    run = local_run([*arguments, *([] if named else ["logdir=."])], config, environ)
    collections = [] if run.recipe.preparation is None else collections_of(run.recipe, run.config)
    caches = caches_of(run, collections, environ)
    samples = checked_samples(run.recipe, run.config, caches)
    if not len(samples):
        raise BadData(f"{command}: the training split holds no sample; add some to the dataset")
    return RunData(run, caches, samples)


def inspect_data(what: str, arguments: Sequence[str], config: Sequence[Path], environ: Mapping[str, str]) -> int:
    """Prints what was asked for; returns 1 where samples hold what is not finite. Raises BadConfig and BadData."""
    open_log()
    data = data_of("inspect", arguments, config, environ)
    run, caches, samples = data.run, data.caches, data.samples
    if what == "nan":
        return named_if_not_finite(samples, run.config.loader_threads, run.recipe.reports.unmeasured)
    batch = first_batch(run, samples)
    output = output_of(run, caches, batch)
    if what == "range":
        found = output.outputs if isinstance(output.outputs, Mapping) else {"outputs": output.outputs}
        show("output", found)
        return 0
    show("key", batch)
    files = PictureFiles(run.logdir)
    for tag, picture in pictures_of(run.recipe, run.config, batch, output.outputs).items():
        if fault := picture_fault(picture):
            raise BadPart(f"recipe {run.recipe.name!r}: its picture {tag} is {fault}, expected uint8 (H, W, 3), or "
                          "(T, H, W, 3) for a clip")  # fmt: skip
        if (path := files.write(tag, picture, 0)) is not None:
            print(f"{tag}: {path}")
    return 0


def named_if_not_finite(samples: Samples, threads: int, unmeasured: frozenset[str] = frozenset()) -> int:
    """Prints the names of samples that hold NaN, or infinity but in `unmeasured`; returns 1 if there are any."""
    bad = 0
    found = ordered_map(
        lambda number: nonfinite_keys(samples.load(number, 0), unmeasured), range(len(samples)), threads
    )
    for number, keys in enumerate(found):
        if keys:
            bad += 1
            print(f"{printable(samples.name(number))}: {', '.join(keys)}: found NaN or infinity")
    print(f"{bad} of {len(samples)} samples hold a value that is not finite")
    return int(bad > 0)


def nonfinite_keys(sample: Sample, unmeasured: frozenset[str] = frozenset()) -> list[str]:
    """Returns the keys whose numbers are not all finite; infinity passes in those that may be unmeasured."""
    arrays = {key: np.asarray(value) for key, value in sample.items()}
    floats = {key: array for key, array in arrays.items() if array.dtype.kind == "f"}
    return [
        key for key, array in floats.items() if (np.isnan(array) if key in unmeasured else ~np.isfinite(array)).any()
    ]


def first_batch(run: LocalRun, samples: Samples) -> Batch:
    """Returns the first samples of epoch 0 as the model reads them."""
    numbers = samples.epoch_draw(0)[: run.config.batch_size]
    batch = collated(run.recipe)([samples.load(int(number), 0) for number in numbers])
    batch = to_device(batch, device_of(World()))
    finish = on_device_of(run.recipe, run.config)
    return batch if finish is None else finish(batch)


def output_of(run: LocalRun, caches: Caches, batch: Batch) -> StepOutput:
    """Returns what the step of a fresh model gives for a batch, of several optimizers for the first one."""
    device, facts = device_of(World()), computed_facts(run.recipe, run.config, caches)
    seed_process(run.config.seed)
    model = made_model(run.recipe, run.config, facts).to(device)
    context: StepContext[Any] = StepContext(
        config=run.config,
        facts=facts,
        device=device,
        helpers=frozen_helpers(run.recipe, run.config, device),
        optimizer=next(iter(made_optimizers(run.recipe, model, run.config).by_name)),
    )
    return step_output(run.recipe, model, batch, context)


def show(title: str, values: Mapping[str, Any]) -> None:
    """Prints shape, type, least, mean and greatest value of each tensor, and texts as they are."""
    table = Table(title, "shape", "type", "least", "mean", "greatest", "not finite")
    for key, value in values.items():
        if not isinstance(value, torch.Tensor):
            table.add_row(
                key, str(len(value)) if hasattr(value, "__len__") else "", type(value).__name__, "", "", "", ""
            )
            continue
        numbers = value.detach().double()
        if not numbers.numel():
            numbers = numbers.new_full((1,), torch.nan)
        ends = [f"{float(end):.4g}" for end in (numbers.min(), numbers.mean(), numbers.max())]
        bad = int((~torch.isfinite(value)).sum())
        table.add_row(key, str(tuple(value.shape)), str(value.dtype).removeprefix("torch."), *ends, str(bad))
    Console(width=None if sys.stdout.isatty() else LOG_COLUMNS).print(table)
