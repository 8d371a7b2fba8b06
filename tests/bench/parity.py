"""Prints how far our model is from LEAD's recorded values: the worst deviation of every output, loss and step.

Run as `python tests/bench/parity.py [--variants tiny default]`; exits with 1 if anything is beyond its tolerance.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from rich.console import Console
from rich.table import Table

from lead_testing import golden_model as golden
from lead_trainer.engine import schedule
from lead_trainer.engine.optim import AdamWSettings, make_adamw
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.losses import compute_losses
from lead_trainer.recipes.lead.metrics import compute_metrics
from lead_trainer.recipes.lead.model import build_model

STAGES = {False: "pretrain", True: "posttrain"}
# Matchings of equal L1 cost differ in their L2 distance, and rounding decides between them.
TOLERANCES = {"metric/radar_distance_error": 1e-2, "metric/radar_vel_error": 1e-2}


@dataclass(frozen=True)
class Comparison:
    """One line of the table."""

    what: str
    key: str
    deviation: float
    allowed: float

    @property
    def good(self) -> bool:
        """True within the tolerance; NaN is not."""
        return self.deviation <= self.allowed


def state_dicts() -> Iterator[Comparison]:
    """Counts parameters and buffers whose name, position or shape differs."""
    for variant in golden.VARIANTS:
        for planner, stage in STAGES.items():
            suffix = "" if variant == "default" else f"_{variant}"
            want = [(k, v["shape"]) for k, v in golden.golden_json(f"state_dict_{stage}{suffix}")["entries"].items()]
            with torch.device("meta"):
                model = build_model(golden.variant_config(variant, planner))
            ours = [(name, list(value.shape)) for name, value in model.state_dict().items()]
            differing = sum(a != b for a, b in zip(ours, want, strict=False)) + abs(len(ours) - len(want))
            yield Comparison(f"state dict {stage} {variant}", f"{len(want)} entries", differing, 0)


def outputs(variant: str) -> Iterator[Comparison]:
    """Compares every recorded output of the forward pass, absolute."""
    config = golden.variant_config(variant, planner=True)
    found = golden.forward_outputs(golden.golden_model(config), golden.golden_batch(config))
    for key, (deviation, allowed) in golden.forward_deviations(variant, found).items():
        yield Comparison(f"output {variant}", key, deviation, allowed)


def losses(variant: str, planner: bool) -> Iterator[Comparison]:
    """Compares raw losses, total, metrics (eval and train mode without dropout) and gradient norms, relative."""
    config = golden.variant_config(variant, planner)
    batch = golden.golden_batch(config)
    cases = golden.golden_json(f"losses_{variant}")["cases"]
    for mode, allowed in (("eval", 1e-5), ("train_nodropout", 1e-4)):
        model = golden.without_dropout(golden.golden_model(config)).train(mode != "eval")
        want = cases[f"{STAGES[planner]}/{mode}"]
        predictions = model(batch)
        report = compute_losses(config, predictions, batch)
        found = {**report.raw, "total": report.total, **compute_metrics(config, predictions, batch)}
        for key, value in {**want["losses"], "total": want["total"], **want["metrics"]}.items():
            deviation = abs(found[key].item() - value) / max(abs(value), 1e-6)
            yield Comparison(
                f"loss {variant} {STAGES[planner]} {mode}", key, deviation, max(allowed, 1e-4 * ("/" in key))
            )
        if mode != "eval":
            report.total.backward()  # type: ignore[no-untyped-call]
            yield gradients(f"gradient {variant} {STAGES[planner]}", model, want["grad_norm_per_parameter"])


def gradients(what: str, model: torch.nn.Module, norms: dict[str, float]) -> Comparison:
    """Returns the parameter whose gradient norm is furthest off; key biases have no gradient but rounding."""
    deviations = {
        name: abs(parameter.grad.norm().item() / norms[name] - 1)
        for name, parameter in model.named_parameters()
        if parameter.grad is not None and norms[name] > 1e-6 and not name.endswith(".attn.key.bias")
    }
    worst = max(deviations, key=lambda name: deviations[name])
    return Comparison(what, f"worst: {worst}", deviations[worst], 1e-2)


def steps(variant: str) -> Iterator[Comparison]:
    """Compares parameter norms after each of three optimizer steps, relative."""
    config: LeadConfig = golden.variant_config(variant, planner=True)
    model, batch = golden.without_dropout(golden.golden_model(config)).train(), golden.golden_batch(config)
    optimizer = make_adamw(model, AdamWSettings(config.lr, config.weight_decay, amsgrad=True))
    factor = schedule.lagging(schedule.warm_restarts(total_steps=310, steps_per_epoch=10))
    for step, want in enumerate(golden.golden_json(f"adamw_steps_{variant}")["steps"]):
        optimizer.param_groups[0]["lr"] = config.lr * factor(step)
        optimizer.zero_grad()
        compute_losses(config, model(batch), batch).total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        parameters = dict(model.named_parameters())
        deviations = {
            name: abs(parameters[name].norm().item() / entry["norm"] - 1)
            for name, entry in want["params"].items()
            if not name.endswith(".attn.key.bias")
        }
        worst = max(deviations, key=lambda name: deviations[name])
        yield Comparison(f"optimizer step {step} {variant}", f"worst: {worst}", deviations[worst], 1e-3)


def main() -> int:
    """Prints the table and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variants", nargs="+", choices=["tiny", "default"], default=["tiny"])
    variants = parser.parse_args().variants
    comparisons = list(state_dicts())
    for variant in variants:
        comparisons += [*outputs(variant), *losses(variant, False), *losses(variant, True), *steps(variant)]
    table = Table("what", "key", "deviation", "allowed", "", title="Our model against LEAD's recorded values")
    for row in comparisons:
        table.add_row(
            row.what, row.key, f"{row.deviation:.2g}", f"{row.allowed:.2g}", "ok" if row.good else "[red]off[/]"
        )
    bad = sum(not row.good for row in comparisons)
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(table)
    console.print(f"{len(comparisons) - bad} of {len(comparisons)} within tolerance")
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except pytest.skip.Exception as absent:
        sys.exit(str(absent))
