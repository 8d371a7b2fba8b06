"""Memory plans: how a step that does not fit into memory gets smaller, plan by plan; the global batch never changes.

    1. gradient checkpointing, where the model has it
    2. each rank's batch in 2, 3, 4 … equal parts, one after the other

A plan is recorded beside the run before it is taken: create-only, so that every later attempt starts with it.
What is recorded is how many samples a process takes at once: with more or fewer processes other parts have as many. One
process tries again at once, from its newest checkpoint; in a group the other ranks wait for the one that failed, so the
attempt ends in an exit code of its own and the next one takes the plan. The operator counts that against no
budget: the ladder ends with single samples, and what does not fit then is a program error. Batch norms see smaller
batches, which changes the numbers: the plan is in the log, in an advisory and in every manifest.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from lead_protocol.exit_codes import ExitCode
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.contract.recipe import Recipe
from lead_trainer.engine.step.epoch_plan import next_parts, parts_of
from lead_trainer.errors import BadConfig, BadData, TrainerError


class OutOfMemory(TrainerError):
    """A step does not fit into the device's memory."""


class StepTooLarge(OutOfMemory):
    """A step does not fit, and the plan that the next attempt uses is recorded."""

    exit_code = ExitCode.STEP_TOO_LARGE


@dataclass(frozen=True)
class MemoryPlan:
    """How a step is made to fit."""

    gradient_checkpointing: bool
    parts: int = 1


def save_memory(recipe: Recipe[Any], model: torch.nn.Module) -> None:
    """Switches gradient checkpointing on; raises BadConfig for a recipe whose model has none."""
    if recipe.save_memory is None:
        raise BadConfig(
            f"gradient_checkpointing: found true, but recipe {recipe.name} has none (its part save_memory); remove the "
            "key, or make batch_size smaller"
        )
    recipe.save_memory(model)


def next_memory_plan(memory_plan: MemoryPlan, rank_batch: int, *, can_checkpoint: bool) -> MemoryPlan | None:
    """Returns the plan after `memory_plan`, None when there is nothing left to try."""
    if can_checkpoint and not memory_plan.gradient_checkpointing:
        return MemoryPlan(True, memory_plan.parts)
    parts = next_parts(memory_plan.parts, rank_batch)
    return None if parts is None else MemoryPlan(memory_plan.gradient_checkpointing, parts)


def record_memory_plan(store: ObjectStore, keys: InstanceKeys, memory_plan: MemoryPlan, rank_batch: int) -> None:
    """Records `memory_plan` for every later attempt, or its equivalent for another number of ranks."""
    rows = rank_batch // memory_plan.parts
    record = {"gradient_checkpointing": memory_plan.gradient_checkpointing, "rows": rows}
    store.create(keys.memory(rows, memory_plan.gradient_checkpointing), json.dumps(record).encode())


def recorded_memory_plan(store: ObjectStore, keys: InstanceKeys, first: MemoryPlan, rank_batch: int) -> MemoryPlan:
    """Returns the last recorded plan, for a rank's batch of `rank_batch` samples; `first` where there is none.

    Raises BadData for an object that is not a valid record.
    """
    memory_plans = [first]
    for info in store.list(keys.memory_prefix):
        try:
            value = json.loads(store.get(info.key, max_bytes=200))
            memory_plans.append(
                MemoryPlan(bool(value["gradient_checkpointing"]), parts_of(rank_batch, int(value["rows"])))
            )
        except (ValueError, KeyError, TypeError, StopIteration, ZeroDivisionError) as error:
            raise BadData(f"{info.key} is no record of a memory memory_plan: {error}") from error
    return max(memory_plans, key=lambda memory_plan: (memory_plan.parts, memory_plan.gradient_checkpointing))


@contextmanager
def memory_errors_named() -> Iterator[None]:
    """Turns a device's error about its memory into OutOfMemory with what to do."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(
            f"a step does not fit into memory: {str(error).splitlines()[0][:200]}; make batch_size smaller with more "
            "gradient_accumulation_steps, switch gradient_checkpointing on, or train in bf16"
        ) from error
