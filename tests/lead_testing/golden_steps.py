"""Recorded optimizer steps of LEAD's model, and gradients of single losses: how far ours are from them."""

from collections.abc import Iterator

import torch

from lead_testing import golden_model as golden
from lead_testing.parity_table import Comparison, relative
from lead_trainer.engine.step import schedule
from lead_trainer.engine.step.optim import AdamWSettings, make_adamw
from lead_trainer.recipes.lead.losses import compute_losses

PROBE_FLOOR = 1e-6  # norms below are rounding


def optimizer_steps(variant: str) -> Iterator[Comparison]:
    """Compares parameter norms, and how far parameters moved, after each of three AdamW steps; relative."""
    config = golden.variant_config(variant, planner=True)
    model, batch = golden.without_dropout(golden.golden_model(config)).train(), golden.golden_batch(config)
    optimizer = make_adamw(model, AdamWSettings(config.lr, config.weight_decay, amsgrad=True))
    factor = schedule.lagging(schedule.warm_restarts(total_steps=310, steps_per_epoch=10))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for step, want in enumerate(golden.golden_json(f"adamw_steps_{variant}")["steps"]):
        optimizer.param_groups[0]["lr"] = config.lr * factor(step)
        optimizer.zero_grad()
        compute_losses(config, model(batch), batch).total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        parameters = dict(model.named_parameters())
        entries = {name: entry for name, entry in want["params"].items() if not name.endswith(".attn.key.bias")}
        norms = {name: relative(parameters[name].norm(), entry["norm"]) for name, entry in entries.items()}
        moved = {
            name: relative((parameters[name] - before[name]).norm(), entry["delta_norm_from_init"])
            for name, entry in entries.items()
        }
        for what, found, allowed in (("norm", norms, 1e-3), ("distance moved", moved, 2e-2)):
            worst = max(found, key=lambda name: found[name])
            yield Comparison(f"{variant} AdamW step {step}, {what}", f"worst: {worst}", found[worst], allowed)


def trajectory() -> Iterator[Comparison]:
    """Compares the total loss before each of 14 steps with restarts, in parts of what the reference allows."""
    config = golden.variant_config("tiny", planner=True)
    model, batch = golden.without_dropout(golden.golden_model(config)).train(), golden.golden_batch(config)
    optimizer = make_adamw(model, AdamWSettings(config.lr, config.weight_decay, amsgrad=True))
    factor = schedule.lagging(schedule.warm_restarts(total_steps=4 * 31, steps_per_epoch=4))
    for want in golden.golden_json("trajectory_tiny")["steps"]:
        lr = config.lr * factor(want["step"])
        optimizer.param_groups[0]["lr"] = lr
        total = compute_losses(config, model(batch), batch).total
        optimizer.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        allowed = 20 * want["abs_diff_total_with_1_thread"] + 1e-4 * abs(want["total"])
        yield Comparison("tiny trajectory, total", f"step {want['step']}", abs(total.item() - want["total"]), allowed)
        yield Comparison("tiny trajectory, lr", f"step {want['step']}", relative(lr, want["lr_used"]), 1e-9)


def loss_by_loss() -> Iterator[Comparison]:
    """Compares the gradient of every raw loss alone: its norm, how many parameters it reaches, and probes."""
    config = golden.variant_config("tiny", planner=True)
    model, batch = golden.without_dropout(golden.golden_model(config)).train(), golden.golden_batch(config)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    for key, want in golden.golden_json("per_loss_grads_tiny")["losses"].items():
        model.load_state_dict(start)  # a forward pass in train mode moves the batch norms
        model.zero_grad()
        loss = compute_losses(config, model(batch), batch).raw[key]
        loss.backward()  # type: ignore[no-untyped-call]
        reached = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        total = torch.linalg.vector_norm(torch.stack([gradient.norm() for gradient in reached.values()]))
        yield Comparison("tiny single loss", f"{key} value", relative(loss, want["loss"]), 1e-4)
        yield Comparison("tiny single loss", f"{key} gradient norm", relative(total, want["grad_norm_all"]), 1e-2)
        counted = abs(len(reached) - want["num_params_reached"])
        yield Comparison("tiny single loss", f"{key} parameters reached", counted, 0)
        probes = {name: value for name, value in want["grad_norm"].items() if value is None or value > PROBE_FLOOR}
        wrong = [name for name, value in probes.items() if (value is None) != (name not in reached)]
        seen = {name: value for name, value in probes.items() if value is not None and name in reached}
        worst = max((relative(reached[name].norm(), value) for name, value in seen.items()), default=0.0)
        yield Comparison("tiny single loss", f"{key} probes", float("inf") if wrong else worst, 1e-2)
