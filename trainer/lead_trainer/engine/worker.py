"""One rank of one attempt, from the job to its exit code.

Started by the launcher as `python -m lead_trainer.engine.worker`, once a process, and called by `lead train` without a
cluster: both run `run_attempt`.
"""

import argparse
import os
import socket
import sys
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import torch

from lead_protocol import environment
from lead_protocol.exit_codes import ExitCode
from lead_protocol.job import TrainJob, parse_job
from lead_protocol.manifests import CheckpointManifest
from lead_protocol.progress_record import ProgressRecord
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.data.loader import Loader
from lead_trainer.engine.agreement import done_by_first
from lead_trainer.engine.attempt import claim_attempt
from lead_trainer.engine.checkpoint import CheckpointIdentity
from lead_trainer.engine.commit import Checkpointer
from lead_trainer.engine.config_document import config_document
from lead_trainer.engine.dataset import Dataset, open_dataset
from lead_trainer.engine.ddp import Group, lost_peer_behind
from lead_trainer.engine.hooks import FirstRank, Hooks, checkpoint_reference
from lead_trainer.engine.patience import Patience
from lead_trainer.engine.precision import chosen_dtype
from lead_trainer.engine.progress import MESSAGE_CHARS, Mailbox, write_termination_log
from lead_trainer.engine.resume import config_digest
from lead_trainer.engine.retention import Retention
from lead_trainer.engine.seeding import fix_algorithms
from lead_trainer.engine.start import Start, build_state, choose_checkpoint
from lead_trainer.engine.state import TrainState
from lead_trainer.engine.stop import StopFlag
from lead_trainer.engine.storage import open_store
from lead_trainer.errors import BadConfig, StopRequested, TrainerError, exit_code_of
from lead_trainer.loop import Stage, train
from lead_trainer.recipes.recipe import Recipe, load_recipe
from lead_trainer.report.console import open_log
from lead_trainer.report.sinks import Sink, Sinks
from lead_trainer.report.tensorboard import EventFile
from lead_trainer.report.wandb import HasWandbKeys, WandbKeys, WandbRun, wandb_settings
from lead_trainer.world import World, world_of

LOCAL_KEYS = {
    "carla_root": "the stage's datasets",
    "load_file": "the stage's initFrom",
    "logdir": "the storage profile",
}

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Place:
    """Where an attempt keeps things, and what a laptop adds to a pod."""

    store: ObjectStore
    scratch: Path  # shared by the ranks of a node
    session_cache: Path | None = None
    termination_log: Path | None = None
    initial_weights: Path | None = None
    dataset_store: ObjectStore | None = None  # where caches are, if elsewhere
    events_folder: Path | None = None  # where event files are written, if not to scratch
    wandb_identity: str = ""  # what W&B knows the run by, where its UID is not unique
    after_commit: Callable[[CheckpointManifest], None] = lambda manifest: None
    removes_old_checkpoints: bool = True  # False in a pod, which may not delete: the operator does it


def device_of(world: World) -> torch.device:
    """Returns this rank's GPU, or the CPU where there is none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", world.local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def resolve_config(recipe: Recipe, job: TrainJob) -> Any:
    """Returns the recipe's config of a job; seed and epochs are the stage's, whatever the recipe keys say."""
    stage = {"seed": job.seed, "epochs": job.epochs}
    return recipe.config(
        {**job.config, **{key: value for key, value in stage.items() if key in recipe.config_model.model_fields}},
        job.preset,
    )


def refuse_local_keys(job: TrainJob) -> None:
    """Raises BadConfig for a key of `lead train` in a pod's job, where the resource says it in another place."""
    for key, place in LOCAL_KEYS.items():
        if job.config.get(key):
            raise BadConfig(f"{key}: found {job.config[key]!r}, but in a cluster {place} says this; remove the key")


def run_attempt(job: TrainJob, place: Place, group: Group, stop: StopFlag) -> None:
    """Trains one attempt to its end; raises StopRequested, a TrainerError or a StoreError, each told in progress."""
    recipe = load_recipe(job.recipe)
    config = resolve_config(recipe, job)
    done_by_first(group, lambda: claim_attempt(place.store, job.keys, job.attempt, _owner()))
    mailbox = _open_mailbox(job, place) if group.world.is_first else None
    try:
        _run(job, place, group, stop, recipe, config, mailbox)
    except BaseException as error:
        if mailbox is not None:
            phase = "Stopped" if isinstance(error, StopRequested) else "Failed"
            mailbox.close(phase, sentence(lost_peer_behind(error, group.world) or error))
        raise
    if mailbox is not None:
        mailbox.close("Done")


def _run(
    job: TrainJob, place: Place, group: Group, stop: StopFlag, recipe: Recipe, config: Any, mailbox: Mailbox | None
) -> None:
    shape = recipe.shape(config)
    fix_algorithms(shape.deterministic)
    dtype = chosen_dtype(shape.precision, group.device)
    config_json = config_document(recipe, config)
    identity = CheckpointIdentity(
        keys=job.keys,
        attempt=job.attempt,
        recipe=job.recipe,
        config_sha256=config_digest(config_json),
        dataset_digests=tuple(dataset.digest for dataset in job.datasets),
        world_size=group.world.world_size,
    )
    patience = Patience(on_wait=lambda message: mailbox.update(urgent=True, message=message) if mailbox else None)
    start = Start(
        job, recipe, config, config_json, shape, group, place.store, identity, place.scratch, patience,
        place.initial_weights,
    )  # fmt: skip
    found = choose_checkpoint(start)
    if mailbox is not None:
        mailbox.update(urgent=True, phase="Loading")
    folder = place.session_cache if shape.session_cache else None
    dataset = open_dataset(job, recipe, config, place.dataset_store or place.store, folder)
    try:
        loader = Loader(
            dataset.samples,
            recipe.collate,
            batch_size=shape.batch_size,
            seed=shape.seed,
            rank=group.world.rank,
            world_size=group.world.world_size,
            threads=shape.loader_threads,
            batches_ahead=shape.batches_ahead,
        )
        steps = loader.steps_per_epoch(0)
        state = build_state(start, found, group.device, dtype)
        checkpointer = Checkpointer(
            group, place.store, identity, recipe.checkpoint_names, config_json, place.scratch, patience
        )
        if found is not None:
            checkpointer.resumed_from(found)
        hooks = Hooks(
            group, recipe, config, shape, job.checkpoint, steps, job.epochs, checkpointer, stop,
            job.grace_period_s,
            _first_rank(job, place, mailbox, state, checkpointer, steps, dataset, recipe, config),
        )  # fmt: skip
        stage = Stage(recipe, config, shape, job.epochs, group.world.rank, group.device, dtype, loader, steps)
        log.info("training", recipe=job.recipe, ranks=group.world.world_size, device=str(group.device),
                 precision=str(dtype).removeprefix("torch."), epochs=job.epochs, steps_per_epoch=steps,
                 first_step=state.step)  # fmt: skip
        try:
            train(stage, state, hooks)
        finally:
            if hooks.first is not None:
                hooks.first.events.close()
    finally:
        dataset.close()


def _first_rank(
    job: TrainJob,
    place: Place,
    mailbox: Mailbox | None,
    state: TrainState,
    checkpointer: Checkpointer,
    steps: int,
    dataset: Dataset,
    recipe: Recipe,
    config: Any,
) -> FirstRank | None:
    if mailbox is None:
        return None
    resumed = checkpointer.manifest
    mailbox.update(
        steps=steps * job.epochs,
        step=state.step,
        epoch=state.epoch,
        best_metric=state.best_metric,
        resumed_from_step=state.step if resumed else None,
        checkpoint=checkpoint_reference(resumed, checkpointer.manifest_key).model_dump() if resumed else None,
    )
    sinks = _sinks(job, place, state.step, recipe.wandb_keys(config) if isinstance(recipe, HasWandbKeys) else None,
                   checkpointer.config)  # fmt: skip
    retention = Retention(place.store, job.keys, job.checkpoint) if place.removes_old_checkpoints else None
    return FirstRank(mailbox, sinks, retention, place.after_commit, dataset.counters)


def _sinks(
    job: TrainJob, place: Place, first_step: int, wandb_keys: WandbKeys | None, config_json: Mapping[str, Any]
) -> Sink:
    prefix = job.keys.tensorboard_prefix
    events = EventFile(
        place.events_folder or place.scratch / "tensorboard",
        place.store,
        prefix,
        attempt=job.attempt,
        first_step=first_step,
        on=job.logging.tensorboard,
    )
    settings = wandb_settings(job, wandb_keys or WandbKeys(), os.environ, identity=place.wandb_identity)
    if settings is None:
        return events
    return Sinks((events, WandbRun(settings, config_json, place.scratch, place.store, f"{prefix}wandb/")))


def _open_mailbox(job: TrainJob, place: Place) -> Mailbox:
    record = ProgressRecord(attempt=job.attempt, seq=0, phase="Starting", epoch=0, epochs=job.epochs, step=0, steps=0)
    return Mailbox(place.store, job.keys.progress(job.attempt), record, place.termination_log)


def _owner() -> str:
    return f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex}"


def sentence(error: BaseException) -> str:
    """Returns what the user reads of an error."""
    text = str(error) or type(error).__name__
    return text if isinstance(error, TrainerError) else f"{type(error).__name__}: {text}"


def ended(error: BaseException, world: World) -> ExitCode:
    """Says on stderr how a rank ended, with a traceback only where the program is at fault; returns the exit code."""
    error = lost_peer_behind(error, world) or error
    code = exit_code_of(error)
    if code == ExitCode.PROGRAM_ERROR and not isinstance(error, TrainerError):
        traceback.print_exception(error)
    elif code == ExitCode.STOPPED:
        log.info(sentence(error))
    else:
        print(f"error: {sentence(error)}", file=sys.stderr)
    return code


def main() -> None:
    """Runs the rank that the environment names, and ends the process in its exit code."""
    parser = argparse.ArgumentParser(prog="lead_trainer.engine.worker", description=__doc__)
    parser.add_argument("--job", type=Path, default=Path(environment.JOB_FILE))
    parser.add_argument("--scratch", type=Path, default=Path(environment.SCRATCH_DIR))
    parser.add_argument("--session-cache", type=Path, default=Path(environment.SESSION_CACHE_DIR))
    parser.add_argument("--termination-log", type=Path, default=Path(environment.TERMINATION_LOG))
    options = parser.parse_args()
    world, code = world_of(os.environ), ExitCode.DONE
    stop = StopFlag()
    stop.listen()
    try:
        job = parse_job(options.job.read_bytes())
        assert isinstance(job, TrainJob), "build jobs run in the launcher"
        open_log(rank=world.rank, run=job.owner.name, stage=job.stage, seed=job.seed, attempt=job.attempt)
        place = Place(
            open_store(os.environ), options.scratch, options.session_cache, options.termination_log,
            removes_old_checkpoints=False,
        )  # fmt: skip
        refuse_local_keys(job)
        group = Group(world, device_of(world))
        run_attempt(job, place, group, stop)
        group.close()
    except BaseException as error:
        code = ended(error, world)
        if not world.is_first or not options.termination_log.exists():
            _leave_word(options.termination_log, error, world)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    # A group whose peers died cannot be torn down in order: torch would wait or abort.
    os._exit(code)


def _leave_word(path: Path, error: BaseException, world: World) -> None:
    message = sentence(lost_peer_behind(error, world) or error)[:MESSAGE_CHARS]
    record = ProgressRecord(
        attempt=1, seq=0, phase="Failed", epoch=0, epochs=0, step=0, steps=0, message=f"rank {world.rank}: {message}"
    )
    write_termination_log(path, record)


if __name__ == "__main__":
    main()
