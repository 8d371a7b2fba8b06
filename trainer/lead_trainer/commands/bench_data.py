"""`lead bench data`: is loading the bottleneck of a run on this machine, and which part of it?

Each stage is measured alone for some seconds on the run's own cache: what the store delivers into an empty session
cache, what is read and checked from the disk, what is decoded, what the whole loader hands over, and what the model
trains on. How each is measured is in `bench`; nothing of it stays.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
import torch
from rich.console import Console
from rich.table import Table

from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.bench.advice import Kept, StageRate, advice
from lead_trainer.bench.cold_cache import WatchedCache, kept_of, measure_network
from lead_trainer.bench.warm_cache import (
    kind_of,
    loader_of,
    measure_decode,
    measure_disk,
    measure_hand_over,
    measure_step,
    samples_here,
)
from lead_trainer.contract.training_keys import TrainingKeys
from lead_trainer.cpu_limit import cpu_share
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.session_cache import open_session_cache
from lead_trainer.engine.samples.dataset import Dataset, dataset_over
from lead_trainer.errors import BadConfig
from lead_trainer.local.job import cache_store, local_job, session_cache_folder
from lead_trainer.local.run import LocalRun, local_run
from lead_trainer.report.console import open_log

log = structlog.get_logger(__name__)


def bench_data(arguments: Sequence[str], config: Sequence[Path], environ: Mapping[str, str], seconds: float) -> None:
    """Measures every stage for about `seconds` and prints a table and one sentence."""
    open_log()
    named = any(argument.startswith("logdir=") for argument in arguments)
    run = local_run([*arguments, *([] if named else ["logdir=."])], config, environ)
    caches = cache_store(run, environ)
    if caches is None:
        raise BadConfig(f"recipe {run.recipe.name} reads no dataset, so there is nothing to load")
    keys: TrainingKeys = run.config
    disk = session_cache_folder(run, environ) if keys.use_training_session_cache else None
    if disk:
        disk.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lead-bench-", dir=disk) as folder:
        found = measured(run, caches, Path(folder), disk, seconds)
    console = Console()
    console.print(_table(found.rates))
    cores = cpu_share()
    sentence = advice(found.rates, keys.loader_threads, cores, kind_of(keys), found.kept)
    console.print(sentence, soft_wrap=True)


@dataclass(frozen=True)
class Measured:
    """What the stages do, the step last, and what of the caches a node keeps."""

    rates: Sequence[StageRate]
    kept: Kept


def measured(run: LocalRun, caches: ObjectStore, folder: Path, disk: Path | None, seconds: float) -> Measured:
    """Measures every stage; `folder` is an empty one in `disk`, the run's session cache, if it has one."""
    job = local_job(run, FolderStore(folder / "run"), caches, processes=1)
    log.info("bench: tables of the cache")
    backend, limit = run.config.session_cache_backend, job.session_cache_bytes
    session = WatchedCache(open_session_cache(backend, caches, folder / "session" if disk else None, limit))
    dataset = dataset_over(job, run.recipe, run.config, caches, session)
    try:
        kept = kept_of(_readers(dataset), disk, limit)
        rates = list(_stages(run, dataset, session, seconds))
        unusable = session.stats().degraded
        return Measured(rates, Kept(0.0, kept.whole_bytes) if unusable else kept)
    finally:
        dataset.close()


def _stages(run: LocalRun, dataset: Dataset, session: WatchedCache, seconds: float) -> Iterator[StageRate]:
    config, readers = run.config, _readers(dataset)
    threads = config.loader_threads
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    log.info("bench: network", seconds=seconds)
    fetched_samples = measure_network(dataset.samples, readers, session, threads, seconds)
    yield fetched_samples.rate
    if fetched_samples.places:
        log.info("bench: disk", seconds=seconds)
        yield measure_disk(session, fetched_samples, readers, threads, seconds)
    log.info("bench: decode", seconds=seconds)
    here = samples_here(dataset.samples, fetched_samples, threads, seconds)
    yield measure_decode(here, config, seconds)
    log.info("bench: hand-over", seconds=seconds)
    loader = loader_of(run.recipe, config, here, device)
    yield measure_hand_over(loader, config, seconds)
    log.info("bench: step", seconds=seconds)
    batch = next(loader.batches(0))
    yield measure_step(run.recipe, config, dataset.caches, batch, device, seconds)


def _readers(dataset: Dataset) -> list[CacheReader]:
    return list(dataset.caches.values())


def _table(rates: Sequence[StageRate]) -> Table:
    table = Table("stage", "samples/s", "times the step", "", title="what each stage does alone", title_justify="left")
    step = rates[-1].samples_per_s
    for rate in rates:
        table.add_row(rate.stage, f"{rate.samples_per_s:.1f}", f"{rate.samples_per_s / step:.1f}", rate.detail)
    return table
