"""A training, opened: dataset, checkpoint, state and hooks, handed to the loop, and closed behind it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import structlog

from lead_trainer.data.node_shares import shares_advice
from lead_trainer.engine.attempt.given import Attempt
from lead_trainer.engine.attempt.later_stages import check_later_stages
from lead_trainer.engine.attempt.memory import MemoryPlan, memory_errors_named
from lead_trainer.engine.attempt.reports import first_rank_of, precision_name, record_speed
from lead_trainer.engine.attempt.stage import opened_dataset, stage_of, start_of, validator_of
from lead_trainer.engine.attempt.start import Start, build_state, choose_checkpoint
from lead_trainer.engine.checkpoints.checkpoint import file_names
from lead_trainer.engine.checkpoints.commit import Checkpointer
from lead_trainer.engine.checkpoints.resume import Found
from lead_trainer.engine.checkpoints.retention import Retention
from lead_trainer.engine.group.agreement import done_by_first
from lead_trainer.engine.hooks import Hooks
from lead_trainer.engine.loop import Stage
from lead_trainer.engine.reporting.loading_statistics import LoadingStatistics
from lead_trainer.engine.reporting.perf import StepClock
from lead_trainer.engine.reporting.watch import ENGINE_RULES, own_rules
from lead_trainer.engine.samples.dataset import Dataset
from lead_trainer.engine.samples.stage_samples import limited
from lead_trainer.engine.step.state import TrainState

log = structlog.get_logger(__name__)


@contextmanager
def opened_training(attempt: Attempt, memory_plan: MemoryPlan) -> Iterator[tuple[Stage, TrainState, Hooks]]:
    """Opens what the loop needs, at the position of the checkpoint to resume; names errors of the device's memory."""
    if attempt.writer is not None:
        attempt.writer.update(urgent=True, phase="Loading")
    with memory_errors_named(), opened_dataset(attempt) as dataset:
        if attempt.job.later_jobs:
            done_by_first(attempt.group, lambda: check_later_stages(attempt.job, attempt.recipe, dataset))
        with _at_its_position(attempt, dataset, memory_plan) as training:
            yield training


@contextmanager
def _at_its_position(
    attempt: Attempt, dataset: Dataset, memory_plan: MemoryPlan
) -> Iterator[tuple[Stage, TrainState, Hooks]]:
    samples = limited(attempt.recipe, attempt.config, dataset)
    start = start_of(attempt, samples, dataset, memory_plan)
    found = choose_checkpoint(start)
    stage = stage_of(attempt, samples, memory_plan)
    state = build_state(start, found, stage.device, stage.dtype)
    stage = replace(stage, plan=stage.plan.after(state.epoch, state.step - state.step_in_epoch))
    checkpointer = _checkpointer(attempt, start, state, found)
    clock, data = StepClock(attempt.group.device), LoadingStatistics(attempt.group.world, dataset, stage.loader)
    hooks = Hooks(
        group=attempt.group,
        recipe=attempt.recipe,
        config=attempt.config,
        policy=attempt.job.checkpoint,
        plan=stage.plan,
        epochs=attempt.job.epochs,
        loader=stage.loader,
        samples=samples.training,
        checkpointer=checkpointer,
        stop=attempt.stop,
        clock=clock,
        data=data,
        validator=validator_of(attempt, samples.validation, stage),
        rules=(*ENGINE_RULES, *own_rules(attempt.recipe, attempt.config)),
        first=first_rank_of(attempt, stage, state, checkpointer, data, memory_plan),
    )
    _log_begin(attempt, stage, state, memory_plan)
    try:
        yield stage, state, hooks
    except Exception:
        checkpointer.leave()
        raise
    finally:
        checkpointer.close()
        if hooks.first is not None:
            hooks.first.events.close()
            record_speed(attempt, stage, clock)


def _checkpointer(attempt: Attempt, start: Start, state: TrainState, found: Found | None) -> Checkpointer:
    optimizers = [part for part in state.optimizers.parts().values() if part != "optimizer"]
    location, job = attempt.location, attempt.job
    removes = location.removes_old_checkpoints and attempt.group.world.is_first
    checkpointer = Checkpointer(
        attempt.group,
        location.store,
        start.identity,
        lambda at: file_names(attempt.recipe, attempt.config, at, optimizers),
        start.config_json,
        location.scratch,
        start.budget,
        Retention(location.store, job.keys, job.checkpoint) if removes else None,
    )
    if found is not None:
        checkpointer.resumed_from(found)
    return checkpointer


def _log_begin(attempt: Attempt, stage: Stage, state: TrainState, memory_plan: MemoryPlan) -> None:
    job, ranks, first_epoch = attempt.job, attempt.group.world.world_size, stage.plan.epoch(0)
    log.info("training", recipe=job.recipe, ranks=ranks, device=str(attempt.group.device),
             precision=precision_name(stage.dtype), epochs=job.epochs, steps=stage.plan.steps,
             steps_per_epoch=first_epoch.steps, batch=attempt.config.batch_size * first_epoch.accumulate,
             parts=memory_plan.parts, first_step=state.step)  # fmt: skip
    advice = shares_advice(job.nodes, ranks, attempt.config.canonical_nodes)
    if advice and job.datasets:
        log.info(advice)
    if state.epoch >= job.epochs or state.ranking.stops_early:
        log.info("nothing is left to train: this run is finished; more epochs, or resume=never, train on",
                 epoch=state.epoch, of=job.epochs, step=state.step)  # fmt: skip
