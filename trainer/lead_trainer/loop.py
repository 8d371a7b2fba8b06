"""The one training loop; it knows no recipe by name.

Called by `engine.worker` on every rank with everything already open and the state already resumed. What it changes is
in `TrainState`; everything else is a pure function of config and position, so stopping after any step and starting
again leads to the same weights.
"""

from dataclasses import dataclass
from typing import Any

import torch

from lead_trainer.data.loader import Loader
from lead_trainer.engine.hooks import Hooks
from lead_trainer.engine.precision import autocast, update_scale
from lead_trainer.engine.seeding import seed_step
from lead_trainer.engine.state import TrainState
from lead_trainer.recipes.recipe import Batch, Recipe, StageShape, StepOutput


@dataclass(frozen=True)
class Stage:
    """What one attempt of one stage instance trains, on one rank."""

    recipe: Recipe
    config: Any
    shape: StageShape
    epochs: int
    rank: int
    device: torch.device
    dtype: torch.dtype
    loader: Loader
    steps_per_epoch: int


def train(stage: Stage, state: TrainState, hooks: Hooks) -> None:
    """Trains from the state's position to the last epoch; raises StopRequested after a commit if asked to stop."""
    hooks.after_start(state)
    while state.epoch < stage.epochs:
        for batch in stage.loader.batches(state.epoch, state.step_in_epoch):
            seed_step(stage.shape.seed, state.epoch, state.step_in_epoch, stage.rank)
            batch = to_device(batch, stage.device)
            output = train_step(stage, state, batch)
            hooks.after_step(state, batch, output)
        state.finish_epoch()
        hooks.after_epoch(state)
        state.begin_epoch()


def train_step(stage: Stage, state: TrainState, batch: Batch) -> StepOutput:
    """Runs forward, backward and update on one batch; skips the update when a gradient is not finite."""
    state.trained.train()
    state.set_learning_rate(stage.recipe.lr_factor(stage.config, state.step, stage.steps_per_epoch, stage.epochs))
    with autocast(stage.dtype, stage.device):
        output = stage.recipe.step(state.trained, batch, stage.config)
    state.optimizer.zero_grad(set_to_none=True)
    state.scaler.scale(output.loss).backward()  # type: ignore[no-untyped-call]
    state.scaler.unscale_(state.optimizer)
    finite = bool(torch.isfinite(clip(state.model, stage.shape.grad_clip_norm)))
    if finite:
        state.scaler.step(state.optimizer)
        state.totals.add({"loss": output.loss, **output.parts, **output.metrics})
    update_scale(state.scaler, stage.shape.loss_scale)
    state.advance(skipped=not finite)
    return output


def clip(model: torch.nn.Module, max_norm: float) -> torch.Tensor:
    """Scales gradients down to `max_norm` in total (0: leaves them) and returns their norm before."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    if max_norm > 0:
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), max_norm, norm)
    return norm


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Moves a batch's tensors to `device`, overlapping with computation where memory is pinned."""
    if device.type == "cpu":
        return batch
    return {
        key: value.to(device, non_blocking=True) if isinstance(value, torch.Tensor) else value
        for key, value in batch.items()
    }
