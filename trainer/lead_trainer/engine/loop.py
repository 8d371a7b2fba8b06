"""The one training loop; it knows no recipe by name.

Called by `engine.worker` on every rank with everything already open and the state already resumed. What it changes is
in `TrainState`; everything else is a pure function of config and position, so stopping after any step and starting
again leads to the same weights.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import torch

from lead_trainer.contract.checked_parts import BadPart
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.results import returned
from lead_trainer.contract.samples import Batch
from lead_trainer.contract.step import Position, StepContext, StepOutput
from lead_trainer.data.loader import Loader
from lead_trainer.engine.group.ddp import Group
from lead_trainer.engine.hooks import Hooks, Step
from lead_trainer.engine.step.epoch_plan import StagePlan
from lead_trainer.engine.step.precision import autocast, update_scale
from lead_trainer.engine.step.seeding import seed_step
from lead_trainer.engine.step.state import TrainState

Rates = Callable[[Position], float | Mapping[str, float]]  # the learning rate's factor at a position


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What one attempt of one stage instance trains, on one rank."""

    recipe: Recipe[Any]
    config: Any
    epochs: int
    group: Group
    device: torch.device
    dtype: torch.dtype
    loader: Loader
    plan: StagePlan
    lr_factor: Rates


def train(stage: Stage, state: TrainState, hooks: Hooks) -> None:
    """Trains from the state's position to the last epoch; raises StopRequested after a commit if asked to stop."""
    hooks.after_start(state)
    while state.epoch < stage.epochs and not state.ranking.stops_early:
        plan = stage.plan.epoch(state.epoch)
        with hooks.opened(stage.loader.batches(state.epoch, plan.first_batch(state.step_in_epoch))) as batches:
            while state.step_in_epoch < plan.steps:
                hooks.after_step(state, train_step(stage, state, batches))
        state.finish_epoch()
        hooks.after_epoch(state)
        state.begin_epoch()


def train_step(stage: Stage, state: TrainState, batches: Iterator[Batch]) -> Step:
    """Runs forward, backward and one update on the next batches; skips it when a gradient is not finite.

    Several optimizers get the gradients of their losses one after the other at the same weights, and step together.
    """
    context, plan = begin_step(stage, state), stage.plan.epoch(state.epoch)
    taken = plan.micro_batches(batches, state.step_in_epoch)
    if state.optimizers.several:
        outputs, batch = several_backward(stage, state, context, list(taken))
    else:
        outputs, batch = backward(stage, state, context, taken)
    norm = update(stage, state, context)
    if isfinite(norm):
        for output in outputs:
            state.totals.add({"loss": output.loss, **output.parts, **output.metrics})
    state.advance(skipped=not isfinite(norm))
    return Step(outputs, batch, norm)


def backward(
    stage: Stage, state: TrainState, context: StepContext[Any], micro_batches: Iterable[Batch]
) -> tuple[list[StepOutput], Batch]:
    """Adds the gradients of a step's micro-batches; returns their outputs, and the last of them on the device."""
    plan, outputs = stage.plan.epoch(state.epoch), []
    first, count = plan.first_micro_batch(state.step_in_epoch), plan.micro_batches_in(state.step_in_epoch)
    for number, batch in enumerate(micro_batches):
        seed_step(stage.config.seed, state.epoch, first + number, stage.group.world.rank)
        last = number + 1 == count
        with gradients_kept(state.trained, last=last):
            with autocast(stage.dtype, stage.device):
                output = step_output(stage.recipe, state.trained, batch, replace(context, micro_batch=number))
            state.scaler.scale(output.loss / count).backward()  # type: ignore[no-untyped-call]
        outputs.append(output if last else replace(output, outputs=None))
    return outputs, batch


def step_output(recipe: Recipe[Any], model: torch.nn.Module, batch: Batch, context: StepContext[Any]) -> StepOutput:
    """Returns what a recipe's step gives; raises BadPart unless it is one whose loss can be trained on."""
    output: StepOutput = returned(recipe.name, "step", recipe.step(model, batch, context), StepOutput)
    loss = returned(recipe.name, "step's loss", output.loss, torch.Tensor)
    if loss.numel() != 1 or not loss.is_floating_point() or not loss.requires_grad:
        found = f"{tuple(loss.shape)} of {loss.dtype}" + ("" if loss.requires_grad else " without a gradient")
        raise BadPart(f"recipe {recipe.name!r}: step's loss is {found}, expected a scalar that gradients come from")
    return output


def several_backward(
    stage: Stage, state: TrainState, context: StepContext[Any], micro_batches: Sequence[Batch]
) -> tuple[list[StepOutput], Batch]:
    """Adds to each optimizer's parameters the gradients of its own loss; returns the outputs of all, added up."""
    stage.group.share_buffers(state.model)  # as DDP does before a forward pass
    by_optimizer = []
    for name in state.optimizers.by_name:
        with state.optimizers.only(name, state.model):
            outputs, batch = backward(stage, state, replace(context, optimizer=name), micro_batches)
        by_optimizer.append(outputs)
    stage.group.average_gradients(state.model.parameters())
    return [added(each) for each in zip(*by_optimizer, strict=True)], batch


def added(outputs: Sequence[StepOutput]) -> StepOutput:
    """Returns what the losses of one micro-batch are together; the last predictions there are are kept."""
    return StepOutput(
        loss=torch.stack([output.loss.detach() for output in outputs]).sum(),
        parts={tag: value for output in outputs for tag, value in output.parts.items()},
        metrics={tag: value for output in outputs for tag, value in output.metrics.items()},
        outputs=next((output.outputs for output in reversed(outputs) if output.outputs is not None), None),
        scaled={tag: value for output in outputs for tag, value in output.scaled.items()},
    )


def begin_step(stage: Stage, state: TrainState) -> StepContext[Any]:
    """Puts model, learning rates and gradients at the beginning of a step; returns what the step is given."""
    state.trained.train()
    if stage.config.freeze_batchnorm:
        state.norms.freeze()
    state.norms.remember()
    context = StepContext(
        config=stage.config,
        at=stage.plan.at(state.step, state.epoch, state.step_in_epoch),
        facts=state.facts,
        device=stage.device,
        helpers=state.helpers,
    )
    state.optimizers.set_rates(stage.lr_factor(context.at))
    state.optimizers.clear_gradients()
    return context


def update(stage: Stage, state: TrainState, context: StepContext[Any]) -> float:
    """Changes the weights by the gradients if these are finite, else nothing; returns the gradients' norm."""
    for optimizer in state.optimizers.by_name.values():
        state.scaler.unscale_(optimizer)
    norm = state.clipper.clip(state.model)
    if isfinite(norm):
        for optimizer in state.optimizers.by_name.values():
            state.scaler.step(optimizer)
        if stage.recipe.after_update is not None:
            with torch.no_grad():
                stage.recipe.after_update(state.model, context)
        if state.average is not None:
            state.average.update(state.model)
    else:
        state.norms.undo()
    update_scale(state.scaler, stage.config.loss_scale)
    return norm


def gradients_kept(model: torch.nn.Module, *, last: bool) -> AbstractContextManager[Any]:
    """Keeps DDP from averaging gradients over ranks before a step's last micro-batch."""
    distributed = hasattr(model, "no_sync") and not last
    return model.no_sync() if distributed else nullcontext()  # type: ignore[operator]
