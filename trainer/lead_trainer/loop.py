"""The one training loop; it knows no recipe by name.

Called by `engine.worker` on every rank with everything already open and the state already resumed. What it changes is
in `TrainState`; everything else is a pure function of config and position, so stopping after any step and starting
again leads to the same weights.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import torch

from lead_trainer.data.loader import Loader
from lead_trainer.engine.epoch_plan import EpochPlan
from lead_trainer.engine.hooks import Hooks, Step
from lead_trainer.engine.precision import autocast, update_scale
from lead_trainer.engine.seeding import seed_step
from lead_trainer.engine.state import TrainState
from lead_trainer.recipes.recipe import Batch, Recipe, StageShape


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
    plan: EpochPlan
    lr_factor: Callable[[int], float]  # of an optimizer step, counted from 0


def train(stage: Stage, state: TrainState, hooks: Hooks) -> None:
    """Trains from the state's position to the last epoch; raises StopRequested after a commit if asked to stop."""
    hooks.after_start(state)
    while state.epoch < stage.epochs and not state.ranking.stops_early:
        with hooks.opened(stage.loader.batches(state.epoch, stage.plan.first_batch(state.step_in_epoch))) as batches:
            while state.step_in_epoch < stage.plan.steps:
                hooks.after_step(state, train_step(stage, state, batches))
        state.finish_epoch()
        hooks.after_epoch(state)
        state.begin_epoch()


def train_step(stage: Stage, state: TrainState, batches: Iterator[Batch]) -> Step:
    """Runs forward, backward and one update on the next batches; skips it when a gradient is not finite."""
    begin_step(stage, state)
    first, count = stage.plan.first_micro_batch(state.step_in_epoch), stage.plan.micro_batches_in(state.step_in_epoch)
    outputs = []
    for number, batch in enumerate(stage.plan.micro_batches(batches, state.step_in_epoch)):
        seed_step(stage.shape.seed, state.epoch, first + number, stage.rank)
        last = number + 1 == count
        with gradients_kept(state.trained, last=last):
            with autocast(stage.dtype, stage.device):
                output = stage.recipe.step(state.trained, batch, stage.config)
            state.scaler.scale(output.loss / count).backward()  # type: ignore[no-untyped-call]
        outputs.append(output if last else replace(output, outputs=None))
    norm = update(stage, state)
    if isfinite(norm):
        for output in outputs:
            state.totals.add({"loss": output.loss, **output.parts, **output.metrics})
    state.advance(skipped=not isfinite(norm))
    return Step(outputs, batch, norm)


def begin_step(stage: Stage, state: TrainState) -> None:
    """Puts the model, the learning rate and the gradients at the beginning of a step."""
    state.trained.train()
    if stage.shape.freeze_batchnorm:
        state.norms.freeze()
    state.norms.remember()
    state.set_learning_rate(stage.lr_factor(state.step))
    state.optimizer.zero_grad(set_to_none=True)


def update(stage: Stage, state: TrainState) -> float:
    """Changes the weights by the gradients if these are finite, else nothing; returns the gradients' norm."""
    state.scaler.unscale_(state.optimizer)
    norm = state.clipper.clip(state.model)
    if isfinite(norm):
        state.scaler.step(state.optimizer)
        if state.average is not None:
            state.average.update(state.model)
    else:
        state.norms.undo()
    update_scale(state.scaler, stage.shape.loss_scale)
    return norm


def gradients_kept(model: torch.nn.Module, *, last: bool) -> AbstractContextManager[Any]:
    """Keeps DDP from averaging gradients over ranks before a step's last micro-batch."""
    distributed = hasattr(model, "no_sync") and not last
    return model.no_sync() if distributed else nullcontext()  # type: ignore[operator]
