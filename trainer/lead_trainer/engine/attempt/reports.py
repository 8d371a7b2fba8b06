"""What rank 0 reports through: the progress record, the event files, W&B and the record of the attempt's speed."""

import os
from collections.abc import Mapping
from typing import Any

import structlog
import torch

from lead_protocol.progress_record import Advisory
from lead_protocol.store.object_store import StoreError
from lead_trainer.engine.attempt.given import Attempt
from lead_trainer.engine.attempt.memory import MemoryPlan
from lead_trainer.engine.checkpoints.commit import Checkpointer
from lead_trainer.engine.loop import Stage
from lead_trainer.engine.reporting.attempt_counters import AttemptCounters
from lead_trainer.engine.reporting.first_rank import FirstRank, checkpoint_reference
from lead_trainer.engine.reporting.loading_statistics import LoadingStatistics
from lead_trainer.engine.reporting.perf import StepClock
from lead_trainer.engine.step.state import TrainState
from lead_trainer.report.live import Live
from lead_trainer.report.picture_files import PictureFiles
from lead_trainer.report.sinks import Sink, Sinks
from lead_trainer.report.tensorboard import EventFile
from lead_trainer.report.wandb import WandbRun, wandb_settings

log = structlog.get_logger(__name__)


def first_rank_of(
    attempt: Attempt,
    stage: Stage,
    state: TrainState,
    checkpointer: Checkpointer,
    data: LoadingStatistics,
    memory_plan: MemoryPlan,
) -> FirstRank | None:
    """Returns what rank 0 reports through, None on every other rank; the record shows where training begins."""
    if attempt.writer is None:
        return None
    resumed = checkpointer.manifest
    attempt.writer.update(
        steps=stage.plan.steps,
        step=state.step,
        epoch=state.epoch,
        best_metric=state.best_metric,
        resumed_from_step=state.step if resumed else None,
        checkpoint=checkpoint_reference(resumed, checkpointer.manifest_key).model_dump() if resumed else None,
    )
    location = attempt.location
    first = FirstRank(
        recipe=attempt.recipe,
        config=attempt.config,
        writer=attempt.writer,
        events=_sinks(attempt, state.step, checkpointer.config),
        counters=AttemptCounters(attempt.group.device),
        after_commit=location.after_commit,
        data_counters=data.reported,
        reported=location.reported,
        live=Live(pictures=location.pictures_folder),
    )
    if memory_plan.parts > 1:
        text = f"each batch is cut into {memory_plan.parts} parts to fit into memory; batch norms see smaller batches"
        first.advise(state, [Advisory(rule="memory", epoch=state.epoch, message=text)])
    return first


def record_speed(attempt: Attempt, stage: Stage, clock: StepClock) -> None:
    """Keeps how fast the attempt trained beside the run; a store that refuses it costs the record alone."""
    plan, ranks = stage.plan.epoch(0), attempt.group.world.world_size
    record = clock.record(
        batch_size=plan.rank_batch * ranks * plan.accumulate, ranks=ranks, precision=precision_name(stage.dtype)
    )
    if record is None:
        return
    try:
        key = attempt.job.keys.perf(attempt.job.attempt)
        attempt.location.store.put(key, record.model_dump_json(indent=1).encode())
    except StoreError as error:
        log.warning("the speed of this attempt is not recorded", error=str(error))


def precision_name(dtype: torch.dtype) -> str:
    """Returns what people call a number format."""
    return str(dtype).removeprefix("torch.")


def _sinks(attempt: Attempt, first_step: int, config_json: Mapping[str, Any]) -> Sink:
    location, job = attempt.location, attempt.job
    prefix = job.keys.tensorboard_prefix
    events = EventFile(
        location.events_folder or location.scratch / "tensorboard",
        None if location.events_folder else location.store,
        prefix,
        attempt=job.attempt,
        first_step=first_step,
        on=job.logging.tensorboard,
    )
    settings = wandb_settings(
        job, attempt.recipe.reports.wandb(attempt.config), os.environ, identity=location.wandb_identity
    )
    sinks: list[Sink] = [events]
    if location.pictures_folder is not None:
        sinks.append(PictureFiles(location.pictures_folder))
    if settings is not None:
        folder, store = location.events_folder or location.scratch, location.store
        uploads = None if location.events_folder else (store, f"{prefix}wandb/")
        sinks.append(WandbRun(settings, config_json, folder, location.scratch, uploads))
    return Sinks(tuple(sinks))
