"""The job of a run without a cluster, and the caches it reads, built where they are missing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from lead_protocol import environment
from lead_protocol.cache_publication import publish_staged
from lead_protocol.job import (
    BuildJob,
    CheckpointPolicy,
    DatasetSource,
    FolderSource,
    LoggingPolicy,
    OwnerIdentity,
    TrainJob,
)
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.building import build
from lead_trainer.engine.checkpoints.attempt_fence import newest_attempt
from lead_trainer.local.logdir import make_logdir
from lead_trainer.local.run import LocalRun
from lead_trainer.local.store import NAMESPACE, PRIVATE_FOLDER, UID
from lead_trainer.recipes.local_runs import (
    cache_collections,
    collections_of,
    refuse_missing_source,
    source_root,
)
from lead_trainer.storage import open_store

_PHASES = {"Listing": "listing the dataset's files"}

log = structlog.get_logger(__name__)


def cache_store(run: LocalRun, environ: Mapping[str, str]) -> ObjectStore | None:
    """Returns where the dataset's cache is; None for a recipe that needs no dataset."""
    root = source_root(run.recipe, run.config)
    if root is None:
        return None
    return open_store(environ) if environ.get(environment.STORE_URL) else FolderStore(Path(root) / "cache")


def session_cache_folder(run: LocalRun, environ: Mapping[str, str]) -> Path | None:
    """Returns where shards are kept on this machine; None reads them in place, for a cache that is a folder here."""
    if run.keys.session_cache:
        return Path(run.keys.session_cache)
    remote = environ.get(environment.STORE_URL, "").startswith("s3://")
    return run.logdir / PRIVATE_FOLDER / "scratch" / "session-cache" if remote else None


def local_job(run: LocalRun, store: FolderStore, caches: ObjectStore | None, *, processes: int) -> TrainJob:
    """Returns the job of the next attempt, with the cache it reads built; for the first process alone."""
    datasets = []
    if caches is not None:
        parts = dataset_runs(run)
        for part in parts.values():
            refuse_missing_source(part.recipe, part.config)
        make_logdir(run.logdir)  # before the build, which may take hours
        datasets = [DatasetSource(name=name, digest=build_cache(part, caches)) for name, part in parts.items()]
    make_logdir(run.logdir)
    keys = run.instance
    return TrainJob(
        owner=OwnerIdentity(namespace=NAMESPACE, name=run.logdir.name or "run", uid=UID),
        stage=keys.stage,
        seed=run.keys.seed,
        attempt=newest_attempt(store, keys) + 1,
        recipe=run.recipe.name,
        preset=run.keys.preset,
        config=dict(run.values),
        epochs=run.config.epochs,
        nodes=1,
        procs_per_node=processes,
        datasets=datasets,
        checkpoint=CheckpointPolicy(
            every_epochs=run.keys.every_epochs,
            every_steps=run.keys.every_steps,
            on_best=run.keys.on_best,
            keep_last=run.keys.keep_last,
            keep_best=run.keys.keep_best,
            keep_every_epochs=run.keys.keep_every_epochs,
            resume="Never" if run.keys.resume == "never" else "Auto",
        ),
        logging=LoggingPolicy(
            tensorboard=run.keys.tensorboard, wandb_mode=run.keys.wandb_mode, wandb_project=run.keys.wandb_project
        ),
    )


def dataset_runs(run: LocalRun) -> dict[str, LocalRun]:
    """Returns the run as the cache of each of its raw trees sees it, by the tree's name."""
    parts = {name: {**run.values, **keys} for name, keys in run.recipe.trees.datasets(run.config).items()}
    return {
        name: replace(run, values=values, config=run.recipe.config(values, run.keys.preset))
        for name, values in parts.items()
    }


def cache_job(run: LocalRun, collections: Sequence[str] = ()) -> BuildJob:
    """Returns the build of a run's cache; raises BadConfig where its raw tree is missing."""
    refuse_missing_source(run.recipe, run.config)
    values = run.values if collections else run.recipe.trees.cache_values(run.config, run.values)
    config = {**values, **({"preset": run.keys.preset} if run.keys.preset else {})}
    return BuildJob(
        owner=OwnerIdentity(namespace=NAMESPACE, name="local", uid=UID),
        generation=1,
        attempt=1,
        index=0,
        parallelism=1,
        recipe=run.recipe.name,
        source=FolderSource(path=str(source_root(run.recipe, run.config))),
        collections=list(collections) or cache_collections(run.recipe, run.config),
        config=config,
    )


def build_cache(run: LocalRun, store: ObjectStore, collections: Sequence[str] = ()) -> str:
    """Builds what is missing of the run's cache and returns its digest."""
    job = cache_job(run, collections)
    phase = ""

    def report(record: Any) -> None:
        nonlocal phase
        if record.phase != phase:
            phase = record.phase
            known = {"digest": record.digest[:12], "samples": record.samples} if record.samples else {}
            log.info(f"cache: {_PHASES.get(phase, phase.lower())}", **known)

    digest = build(job, store, report, at_home=True, asked=collections or collections_of(run.recipe, run.config)).digest
    publish_staged(store, job.keys, digest)
    return digest
