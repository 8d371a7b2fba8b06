"""`lead bench model`: what number format and gradient checkpointing are worth for a run's model on this machine.

Each variant trains on the first batch of the run for some seconds; nothing of it stays. Beside the measured change
stands what the recipe's origin states, where the recipe knows. Several GPUs are not measured: one process uses one.
"""

import gc
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
import torch
from rich.console import Console
from rich.table import Table

from lead_trainer.bench.model_step import StepTrial, Variant, activation_bytes, peak_bytes, seconds_a_step, step_trial
from lead_trainer.commands.inspect_data import LOG_COLUMNS, data_of, first_batch
from lead_trainer.engine.attempt.memory import memory_errors_named
from lead_trainer.engine.samples.data_facts import computed_facts
from lead_trainer.engine.step.precision import chosen_dtype
from lead_trainer.engine.worker import device_of
from lead_trainer.local.run import LocalRun
from lead_trainer.report.console import open_log
from lead_trainer.world import World

GIB = 2**30
PLAIN, HALF, CHECKPOINTING = "fp32", "half precision", "gradient checkpointing"

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Measured:
    """The step of one variant."""

    seconds: float
    kept_bytes: int  # for the backward pass
    peak_bytes: int | None  # of a GPU
    parameters: int


def bench_model(arguments: Sequence[str], config: Sequence[Path], environ: Mapping[str, str], seconds: float) -> None:
    """Measures the step of each variant for about `seconds` and prints a table."""
    open_log()
    data = data_of("bench model", arguments, config, environ)
    run, device = data.run, device_of(World())
    batch, facts = first_batch(run, data.samples), computed_facts(run.recipe, run.config, data.caches)
    found: dict[str, Measured] = {}
    for name, variant in variants(run, device).items():
        log.info(f"bench: {name}", seconds=seconds)
        with memory_errors_named():
            found[name] = measured(step_trial(run.recipe, run.config, facts, batch, device, variant), device, seconds)
        gc.collect()  # model and optimizer may refer to each other, and the next variant's peak would count them
    rows, parameters = len(next(iter(batch.values()))), found[PLAIN].parameters
    title = f"recipe {run.recipe.name}: {parameters:,} parameters, {rows} samples a step, {device_name(device)}"
    console = Console(width=None if sys.stdout.isatty() else LOG_COLUMNS)
    console.print(table(title, found, rows, run.recipe.reports.stated_speed))


def measured(trial: StepTrial, device: torch.device, seconds: float) -> Measured:
    """Returns what a step takes over about `seconds`."""
    return Measured(
        kept_bytes=activation_bytes(trial),
        seconds=seconds_a_step(trial, seconds),
        peak_bytes=peak_bytes(trial, device),
        parameters=sum(one.numel() for one in trial.model.parameters()),
    )


def variants(run: LocalRun, device: torch.device) -> dict[str, Variant]:
    """Returns what is measured by name: fp32, a half format, and each with checkpointing where the recipe has it.

    The half format is the run's own, or the one that the device has.
    """
    own = run.config.number_format
    half = own if own in ("bf16", "fp16") else half_of(device)
    found = {}
    for recompute in (False, True) if run.recipe.save_memory is not None else (False,):
        for name, number_format in ((PLAIN, "fp32"), (f"{HALF} ({half})", half)):
            found[f"{name}, {CHECKPOINTING}" if recompute else name] = Variant(number_format, recompute)
    return found


def half_of(device: torch.device) -> str:
    """Returns fp16 for a GPU that has no bf16, else bf16."""
    has_bf16 = device.type == "cpu" or chosen_dtype("auto", device) == torch.bfloat16
    return "bf16" if has_bf16 else "fp16"


def device_name(device: torch.device) -> str:
    """Returns the name of a GPU, or how many threads a CPU computes with."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"


def table(title: str, found: Mapping[str, Measured], rows: int, stated: Mapping[str, str]) -> Table:
    """Returns each variant's step beside plain fp32, and what the recipe's origin states of the same change."""
    shown = Table("variant", "s a step", "samples/s", "speed", "kept for backward", "of fp32", "GPU memory", "stated",
                  title=title, title_justify="left")  # fmt: skip
    plain = found[PLAIN]
    for name, one in found.items():
        peak = "not measured" if one.peak_bytes is None else f"{one.peak_bytes / GIB:.2f} GiB"
        key = CHECKPOINTING if name == f"{PLAIN}, {CHECKPOINTING}" else name.partition(" (")[0]
        stated_value = "" if CHECKPOINTING in name and key != CHECKPOINTING else stated.get(key, "")
        shown.add_row(
            name,
            f"{one.seconds:.3g}",
            f"{rows / one.seconds:.3g}",
            f"{plain.seconds / one.seconds - 1:+.0%}",
            f"{one.kept_bytes / GIB:.3g} GiB",
            f"{one.kept_bytes / max(1, plain.kept_bytes) - 1:+.0%}",
            peak,
            stated_value,
        )
    for name, value in stated.items():
        if name not in (HALF, CHECKPOINTING):
            shown.add_row(name, "not measured", *[""] * 5, value)
    return shown
