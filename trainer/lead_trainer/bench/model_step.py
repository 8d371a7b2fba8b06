"""Steps of a fresh model on one batch, weights thrown away: their time, and the memory that they take."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.samples import Batch
from lead_trainer.contract.step import Facts, Position, StepContext
from lead_trainer.engine.attempt.memory import save_memory
from lead_trainer.engine.step.helper_networks import frozen_helpers
from lead_trainer.engine.step.optimizers import Optimizers
from lead_trainer.engine.step.precision import autocast, chosen_dtype


@dataclass(frozen=True)
class Variant:
    """How a step computes."""

    number_format: str  # auto | fp32 | bf16 | fp16
    gradient_checkpointing: bool


@dataclass(frozen=True)
class StepTrial:
    """A step that can be repeated."""

    forward: Callable[[str], torch.Tensor]  # the loss of one optimizer, by its name
    optimizers: Optimizers
    model: torch.nn.Module
    rows: int  # samples of the batch

    def __call__(self) -> None:
        """Runs forward pass, backward pass and update, and waits for the device."""
        self.optimizers.clear_gradients()
        for name in self.optimizers.by_name:
            with self.optimizers.only(name, self.model):
                loss = self.forward(name)
                loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in self.optimizers.by_name.values():
            optimizer.step()
        loss.item()


def step_trial(
    recipe: Recipe[Any], config: Any, facts: Facts, batch: Batch, device: torch.device, variant: Variant
) -> StepTrial:
    """Returns the step of a fresh model.

    It is a step of the stage's last epoch, in which a recipe with several phases trains every part.
    """
    model = recipe.model(config, facts).to(device).train()
    if variant.gradient_checkpointing:
        save_memory(recipe, model)
    optimizers = Optimizers(recipe.optimizer(model, config))
    last = max(0, config.epochs - 1)
    at = Position(step=last, epoch=last, epoch_steps=(1,) * (last + 1))
    helpers = frozen_helpers(recipe, config, device)
    context = StepContext(config=config, at=at, facts=facts, device=device, helpers=helpers)

    def forward(name: str) -> torch.Tensor:
        with autocast(chosen_dtype(variant.number_format, device), device):
            return recipe.step(model, batch, replace(context, optimizer=name)).loss

    return StepTrial(forward, optimizers, model, len(next(iter(batch.values()))))


def seconds_a_step(trial: StepTrial, seconds: float) -> float:
    """Returns the mean time of steps over about `seconds`; the first one, which warms up, is not counted."""
    trial()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds or not count:
        trial()
        count += 1
    return (time.perf_counter() - begin) / count


def activation_bytes(trial: StepTrial) -> int:
    """Returns the bytes that a forward pass keeps for its backward pass, besides parameters, on any device."""
    own = {one.untyped_storage().data_ptr() for one in (*trial.model.parameters(), *trial.model.buffers())}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # an operation that keeps its own result would refer to itself, and never be freed

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        losses = [trial.forward(name) for name in trial.optimizers.by_name]  # held, so that no storage is used twice
    del losses
    return sum(kept.values())


def peak_bytes(trial: StepTrial, device: torch.device) -> int | None:
    """Returns the most memory that a step takes of a GPU, weights and optimizer included; None on a CPU."""
    if device.type != "cuda":
        return None
    trial()
    torch.cuda.reset_peak_memory_stats(device)
    trial()
    return torch.cuda.max_memory_allocated(device)
