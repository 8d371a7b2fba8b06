"""Does real training steps of full-size models: forward, losses, backward, AdamW; prints time and peak memory.

Run as `python tests/bench/full_size_step.py [--variants default regnety032] [--batch 2] [--steps 3]`. On a CPU it
prints LEAD's own figures beside ours (`lead_model/timing.json` in the shared folder, 2 cores); on a GPU it trains in
bf16 with a batch of 64 unless told otherwise. Every variant runs in a process of its own, so memory is its own.
"""

import argparse
import json
import multiprocessing
import resource
import statistics
import time
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from rich.console import Console
from rich.table import Table

from lead_testing import golden_model
from lead_testing.sample_batches import random_batch
from lead_trainer.contract.step import StepContext
from lead_trainer.data.device_batch import to_device
from lead_trainer.engine.step.precision import autocast, chosen_dtype
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.recipe import RECIPE
from lead_trainer.recipes.lead.recipe import optimizer as recipe_optimizer

VARIANTS = ("default", "regnety032")
STAGES = {"pretrain": False, "posttrain": True}


@dataclass(frozen=True)
class Figures:
    """What one variant and stage cost."""

    parameters: int
    first_loss: float
    last_loss: float
    step_s: float  # median, without the first
    peak_mib: float  # of the process on a CPU, of torch on a GPU


def measure(variant: str, planner: bool, batch_size: int, steps: int, threads: int) -> Figures:
    """Trains `steps` steps on one batch of random samples of full size."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    config = load_config({"use_planning_decoder": planner, "batch_size": batch_size}, variant)
    dtype = chosen_dtype(config.number_format, device)
    model = RECIPE.model(config, {}).to(device).train()
    optimizer = recipe_optimizer(model, config)
    batch = to_device(random_batch(config, batch_size), device)
    times, losses = [], []
    for _ in range(steps):
        begin = time.perf_counter()
        with autocast(dtype, device):
            output = RECIPE.step(model, batch, StepContext(config=config, device=device))
        optimizer.zero_grad(set_to_none=True)
        output.loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(output.loss.item())  # waits for the device
        times.append(time.perf_counter() - begin)
    on_cpu = device.type == "cpu"
    peak = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        if on_cpu
        else torch.cuda.max_memory_allocated() / 2**20
    )
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Figures(parameters, losses[0], losses[-1], statistics.median(times[1:] or times), peak)


def leads_figures() -> dict[tuple[str, str], dict[str, Any]]:
    """Returns the fastest run of each case that LEAD's code was timed in, an undisturbed one where there is one."""
    document = json.loads((golden_model.golden_dir() / "timing.json").read_text())
    runs = sorted(document["runs"], key=lambda run: (not run["disturbed"], -run["forward_backward_s"]))
    return {(run["variant"], run["phase"]): run for run in runs}


def main() -> None:
    """Prints one line a variant and stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variants", nargs="+", choices=golden_model.VARIANTS, default=list(VARIANTS))
    parser.add_argument("--stages", nargs="+", choices=list(STAGES), default=list(STAGES))
    parser.add_argument("--batch", type=int, default=64 if torch.cuda.is_available() else 2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{options.threads} CPU threads"
    table = Table("variant", "parameters", "loss, first → last", "s a step", "samples/s", "peak MiB", "LEAD: s a step",
                  "LEAD: peak MiB", title=f"batch {options.batch} at full size on {device}")  # fmt: skip
    try:
        lead = leads_figures()
    except pytest.skip.Exception:
        lead = {}
    context = multiprocessing.get_context("spawn")
    for variant in options.variants:
        for stage in options.stages:
            with context.Pool(1) as pool:
                arguments = (variant, STAGES[stage], options.batch, options.steps, options.threads)
                figures = pool.apply(measure, arguments)
            theirs = lead.get((variant, stage), {})
            seconds = theirs.get("forward_backward_s", 0.0) + theirs.get("adamw_amsgrad_step_s", 0.0)
            table.add_row(
                f"{variant} {stage}", f"{figures.parameters / 1e6:.1f} M",
                f"{figures.first_loss:.3g} → {figures.last_loss:.3g}", f"{figures.step_s:.2f}",
                f"{options.batch / figures.step_s:.2f}", f"{figures.peak_mib:.0f}",
                f"{seconds:.2f}{' (disturbed)' if theirs['disturbed'] else ''}" if theirs else "–",
                f"{theirs['peak_rss_MiB']}" if theirs else "–",
            )  # fmt: skip
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
