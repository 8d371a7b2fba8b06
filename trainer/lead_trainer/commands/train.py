"""`lead train`: training without a cluster, by the code that pods run.

The cache is built below `carla_root/cache` (or in LEAD_STORE_URL), the run's objects lie in `logdir/.lead`; after each
epoch its files appear in `logdir` under LEAD's names, as hard links. Calling it again resumes. Under torchrun every
process calls it.
"""

import statistics
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from lead_protocol.job import TrainJob
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.store.folder import FolderStore
from lead_trainer.engine.attempt.config_check import check_config, check_model
from lead_trainer.engine.attempt.location import RunLocation
from lead_trainer.engine.attempt.run import run_attempt
from lead_trainer.engine.checkpoints.instances import instance_manifests
from lead_trainer.engine.checkpoints.manifest_listing import manifest_keys
from lead_trainer.engine.group.agreement import done_by_first
from lead_trainer.engine.group.ddp import Group
from lead_trainer.engine.group.stop import StopFlag
from lead_trainer.engine.worker import device_of
from lead_trainer.errors import StopRequested
from lead_trainer.local.checkpoint_view import CheckpointView
from lead_trainer.local.job import cache_store, local_job, session_cache_folder
from lead_trainer.local.logdir import gone_if_refused, hold_lock
from lead_trainer.local.named_view import NamedView
from lead_trainer.local.refusals import (
    refuse_another_run,
    refuse_older_checkpoint,
    refuse_other_weights,
    refuse_to_begin,
)
from lead_trainer.local.run import LocalRun, local_run
from lead_trainer.local.store import PRIVATE_FOLDER
from lead_trainer.report.console import open_log
from lead_trainer.world import world_of

PICTURES_FOLDER = "training_viz"  # LEAD writes outputs/training_viz, where runs overwrite each other's
IDENTITY_KEY = "identity"

log = structlog.get_logger(__name__)


def train_locally(arguments: Sequence[str], config: Sequence[Path], environ: Mapping[str, str]) -> None:
    """Trains the run that the arguments describe, or resumes it, once a seed; raises what `run_attempt` raises."""
    run = local_run(arguments, config, environ)
    world = world_of(environ)
    open_log(rank=world.rank, run=run.logdir.name)
    stop, group = StopFlag(), Group(world, device_of(world))
    each = [local_run([*arguments, *seed_arguments(run, seed)], config, environ) for seed in run.keys.seeds] or [run]
    for one in each:
        with gone_if_refused(one.logdir):
            train_one(one, group, stop, environ)
    if run.keys.seeds and world.is_first:
        print(seeds_table(each))
    group.close()


def seed_arguments(run: LocalRun, seed: int) -> list[str]:
    """Returns the additional arguments for one seed of several."""
    return [f"seed={seed}", f"logdir={run.logdir / f'seed_{seed}'}"]


def train_one(run: LocalRun, group: Group, stop: StopFlag, environ: Mapping[str, str]) -> None:
    """Trains or resumes one run, every process of the group together."""
    world = group.world
    store = FolderStore(run.logdir / PRIVATE_FOLDER)
    warnings = run.recipe.reports.warnings(run.config)
    for sentence in (*run.replaced, *warnings) if world.is_first and begins(run, store) else ():
        log.warning(sentence)
    caches = cache_store(run, environ)

    def prepared() -> str:
        refuse_another_run(run, store)
        refuse_to_begin(run, store)
        refuse_other_weights(run, store)
        refuse_older_checkpoint(run, store)
        check_before_build(run, store, ranks=world.world_size)
        for name in (run.lock_name, run.instance.name):  # by the second one others see that it is trained
            hold_lock(run.logdir, name)
        return local_job(run, store, caches, processes=world.world_size).model_dump_json()

    job = TrainJob.model_validate_json(done_by_first(group, prepared))
    open_log(rank=world.rank, run=job.owner.name, stage=job.stage, seed=job.seed, attempt=job.attempt)
    stop.listen_later()
    view = view_of(run, store, job.keys)
    location = RunLocation(
        store,
        run.scratch_folder,
        session_cache_folder(run, environ),
        initial_weights=Path(run.keys.load_file) if run.keys.load_file else None,
        dataset_store=caches,
        events_folder=run.events_folder,
        pictures_folder=run.logdir / PICTURES_FOLDER,
        after_commit=view.show,
        reported=frozenset(warnings),
        wandb_identity=_identity(store),
    )
    try:
        run_attempt(job, location, group, stop)
    except StopRequested as error:
        raise StopRequested(f"{error}; {how_to_go_on(run, store)}") from error
    if world.is_first:
        view.show_newest(job.keys)
        if sys.stdout.isatty():
            print("\n".join(made_lines(run, store)))
        print(weights_line(run, view))


def how_to_go_on(run: LocalRun, store: FolderStore) -> str:
    """Returns what continues a run that was stopped on request."""
    if not instance_manifests(store, run.instance):
        return "the same command begins it again"
    again = " without resume=never" if run.keys.resume == "never" else ""
    return f"the same command{again} goes on from it"


def check_before_build(run: LocalRun, store: FolderStore, *, ranks: int) -> None:
    """Raises BadConfig for what is wrong with a run and needs no data to be found: a build may take hours."""
    check_config(run.recipe, run.config, epochs=run.config.epochs, ranks=ranks)
    if begins(run, store):
        check_model(run.recipe, run.config, Path(run.keys.load_file) if run.keys.load_file else None)


def begins(run: LocalRun, store: FolderStore) -> bool:
    """Returns whether a run begins at step 0, with initial weights, and resumes no checkpoint."""
    return run.keys.resume == "never" or not manifest_keys(store, run.instance.manifests_prefix)


def view_of(run: LocalRun, store: FolderStore, keys: InstanceKeys) -> CheckpointView | NamedView:
    """Returns what shows a run's checkpoints in its folder."""
    objects = run.logdir / PRIVATE_FOLDER
    if run.recipe.files.shown is not None:
        return NamedView(run.logdir, objects, store, run.recipe.files.shown, run.config, keys)
    kept_epochs = run.recipe.files.kept_epochs
    return CheckpointView(run.logdir, objects, store, keys, kept_epochs and kept_epochs(run.config))


def made_lines(run: LocalRun, store: FolderStore) -> list[str]:
    """Returns what a run has left beside its weights, each with the command that shows it."""
    kept = instance_manifests(store, run.instance)
    size = sum(stored.size for manifest in kept for stored in manifest.files.values()) / 1e6
    epochs = ", ".join(str(manifest.epoch) for manifest in reversed(kept))
    lines = [f"checkpoints: after epochs {epochs}, {size:.0f} MB; check them: lead fsck {run.logdir}"] if kept else []
    pictures = run.logdir / PICTURES_FOLDER
    if pictures.is_dir():
        lines.append(f"pictures: {pictures} ({sum(1 for _ in pictures.iterdir())} files)")
    if any(run.events_folder.glob("events.out.tfevents.*")):
        lines.append(f"curves: lead tensorboard {run.logdir}; in a line: lead runs {run.logdir}")
    return lines


def weights_line(run: LocalRun, view: CheckpointView | NamedView) -> str:
    """Returns where the trained weights are and what is usually done with them next."""
    if (shown := view.weights()) is None:
        return f"weights: none, no epoch was finished; the same command goes on in {run.logdir}"
    path, epoch = shown
    parts = [f"weights: {path} (epoch {epoch} of {run.config.epochs})"]
    if (next_command := run.recipe.reports.next_command) is not None:
        parts.append(next_command(run.config, path, run.logdir, {"recipe": run.recipe.name, "preset": run.keys.preset}))
    return "; ".join([*parts, "train on: the same command with more epochs"])


def _identity(store: FolderStore) -> str:
    """Returns a name of this logdir that no other has, made when it is first used."""
    store.create(IDENTITY_KEY, uuid.uuid4().hex.encode())
    return store.get(IDENTITY_KEY, max_bytes=64).decode()


def seeds_table(runs: Sequence[LocalRun]) -> str:
    """Returns mean and standard deviation over finished runs of every metric of their last checkpoints."""
    newest = [instance_manifests(FolderStore(run.logdir / PRIVATE_FOLDER), run.instance)[0] for run in runs]
    last = [manifest.metrics for manifest in newest]
    rows = [f"{len(last)} seeds: mean ± standard deviation"]
    for name in sorted(set.intersection(*(set(metrics) for metrics in last))):
        values = [metrics[name] for metrics in last]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        rows.append(f"  {name:<32} {statistics.fmean(values):.6g} ± {spread:.3g}")
    return "\n".join(rows)
