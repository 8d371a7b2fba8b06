"""One rank of one attempt, from a job to its last commit; called by `worker` in a pod and by `lead train` on a laptop.

A step that does not fit into memory starts the training once more, one memory_plan further down (`memory`).
"""

import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
import torch

from lead_protocol.job import TrainJob
from lead_protocol.progress_record import ProgressRecord
from lead_trainer.contract.installed import load_recipe
from lead_trainer.engine.attempt.evaluation import evaluate
from lead_trainer.engine.attempt.given import Attempt
from lead_trainer.engine.attempt.location import RunLocation
from lead_trainer.engine.attempt.memory import (
    MemoryPlan,
    OutOfMemory,
    StepTooLarge,
    next_memory_plan,
    record_memory_plan,
    recorded_memory_plan,
)
from lead_trainer.engine.attempt.stage_config import resolve_config
from lead_trainer.engine.attempt.training import opened_training
from lead_trainer.engine.checkpoints.attempt_fence import start_attempt
from lead_trainer.engine.group.agreement import done_by_first
from lead_trainer.engine.group.ddp import Group, lost_peer_behind
from lead_trainer.engine.group.stop import StopFlag
from lead_trainer.engine.loop import train
from lead_trainer.engine.reporting.progress import ProgressWriter
from lead_trainer.engine.step.seeding import fix_algorithms
from lead_trainer.errors import StopRequested, TrainerError

log = structlog.get_logger(__name__)


def run_attempt(job: TrainJob, location: RunLocation, group: Group, stop: StopFlag) -> None:
    """Trains, or measures, to the end; raises StopRequested, a TrainerError or a StoreError, after it is reported."""
    with _reported(job, location, group, stop) as attempt:
        fix_algorithms(attempt.config.deterministic)
        if job.evaluates:
            return evaluate(attempt)
        memory_plan = _first_memory_plan(attempt)
        while True:
            try:
                with opened_training(attempt, memory_plan) as (stage, state, hooks):
                    return train(stage, state, hooks)
            except OutOfMemory as error:
                memory_plan = _after_out_of_memory(attempt, memory_plan, error)
            torch.cuda.empty_cache()  # after the error is gone: its traceback holds what it was raised over


def sentence(error: BaseException) -> str:
    """Returns what the user reads of an error."""
    text = str(error) or type(error).__name__
    return text if isinstance(error, TrainerError) else f"{type(error).__name__}: {text}"


@contextmanager
def _no_exit(recipe: str) -> Iterator[None]:
    """Turns an exit from within an attempt, which only a recipe's code asks for, into a failure."""
    try:
        yield
    except SystemExit as error:
        raise TrainerError(
            f"recipe {recipe!r} ended the process by exit({error.code!r}); raise an error instead"
        ) from error


@contextmanager
def _reported(job: TrainJob, location: RunLocation, group: Group, stop: StopFlag) -> Iterator[Attempt]:
    """Starts the attempt, and closes its progress record with how it ended."""
    recipe = load_recipe(job.recipe)
    config = resolve_config(recipe, job)
    done_by_first(group, lambda: start_attempt(location.store, job.keys, job.attempt, _owner(), run=job.owner.name))
    writer = _progress_writer(job, location) if group.world.is_first else None
    try:
        with _no_exit(recipe.name):
            yield Attempt(
                job=job, location=location, group=group, stop=stop, recipe=recipe, config=config, writer=writer
            )
    except BaseException as error:
        if writer is not None:
            phase = "Stopped" if isinstance(error, StopRequested) else "Failed"
            writer.close(phase, sentence(lost_peer_behind(error, group.world) or error))
        raise
    if writer is not None:
        writer.close("Done")


def _progress_writer(job: TrainJob, location: RunLocation) -> ProgressWriter:
    record = ProgressRecord(attempt=job.attempt, seq=0, phase="Starting", epoch=0, epochs=job.epochs, step=0, steps=0)
    return ProgressWriter(location.store, job.keys.progress(job.attempt), record, location.termination_log)


def _owner() -> str:
    return f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex}"


def _first_memory_plan(attempt: Attempt) -> MemoryPlan:
    """Returns the plan that earlier attempts of this run have reached, where it may differ from the first one."""
    first = MemoryPlan(attempt.config.saves_memory)
    if not attempt.config.split_when_out_of_memory:
        return first
    store, keys = attempt.location.store, attempt.job.keys
    return MemoryPlan(
        **done_by_first(attempt.group, lambda: vars(recorded_memory_plan(store, keys, first, attempt.rank_batch)))
    )


def _after_out_of_memory(attempt: Attempt, memory_plan: MemoryPlan, error: OutOfMemory) -> MemoryPlan:
    """Records the next plan and returns it.

    Raises `error` where there is none, and StepTooLarge in a group, whose other ranks wait for this one.
    """
    if not attempt.config.split_when_out_of_memory:
        raise error
    can_checkpoint = attempt.recipe.save_memory is not None
    following = next_memory_plan(memory_plan, attempt.rank_batch, can_checkpoint=can_checkpoint)
    if following is None:
        raise error
    record_memory_plan(attempt.location.store, attempt.job.keys, following, attempt.rank_batch)
    log.warning("a step did not fit into memory", next_parts=following.parts,
                gradient_checkpointing=following.gradient_checkpointing, error=str(error))  # fmt: skip
    if attempt.group.world.world_size > 1:
        raise StepTooLarge(
            f"{error}; the next attempt cuts each batch into {following.parts} parts"
            + (" and recomputes activations" if following.gradient_checkpointing else "")
        ) from error
    return following
