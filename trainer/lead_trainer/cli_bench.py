"""`lead bench data`: is loading the bottleneck of a run on this machine, and which part of it?

Each stage is measured alone on the run's own cache: what the store delivers into an empty session cache, what is read
and checked from a full one, what is decoded, what the whole loader hands over, and what the model trains on.
"""

import itertools
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.cli_train import LocalRun, cache_store, local_job, local_run
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.jpeg_picture import decoded
from lead_trainer.data.loader import Loader, on_device_of
from lead_trainer.data.process_loader import loader_named
from lead_trainer.engine.dataset import Dataset, open_dataset
from lead_trainer.engine.precision import autocast, chosen_dtype
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.recipe import Batch, Recipe, StageShape
from lead_trainer.report.console import open_log

AMPLE = 1.2  # a stage this much faster than the step does not hold it up


@dataclass(frozen=True)
class StageRate:
    """What one stage does alone."""

    stage: str  # network | disk | decode | hand-over | step
    samples_per_s: float
    detail: str = ""


def advice(rates: Sequence[StageRate], threads: int, cores: int) -> str:
    """Returns one sentence: what bounds the run, and what would help."""
    speed = {rate.stage: rate.samples_per_s for rate in rates}
    step, delivered = speed["step"], speed["hand-over"]
    if delivered >= AMPLE * step:
        if speed["network"] < step:
            return (
                f"Bound by the network in a node's first epoch ({speed['network']:.0f} samples/s against "
                f"{step:.0f} of the step), by the step afterwards: keep the session cache on a PersistentVolume."
            )
        return f"Bound by the step: loading delivers {delivered / step:.1f} times what the model trains on."
    if speed["disk"] < AMPLE * min(delivered, speed["decode"]):
        return (
            "Bound by the disk of the session cache: put it on a faster local SSD, or give the pod memory to cache it."
        )
    if speed["decode"] < AMPLE * delivered:
        more = "raise num_threads" if threads < cores else "give the run more cores"
        return (
            f"Bound by decoding: {threads} threads on {cores} cores decode {speed['decode']:.0f} samples/s, the step "
            f"could take {step:.0f}; {more}, or build the cache with smaller pictures."
        )
    return (
        f"Bound by the hand-over: samples are decoded at {speed['decode']:.0f} a second but delivered at "
        f"{delivered:.0f}; lower batch_size or free memory bandwidth, and look for keys whose shape changes."
    )


def bench_data(words: Sequence[str], config_files: Sequence[Path], environ: Mapping[str, str], seconds: float) -> None:
    """Measures every stage for about `seconds` and prints a table and one sentence."""
    open_log()
    named = any(word.startswith("logdir=") for word in words)
    run = local_run([*words, *([] if named else ["logdir=."])], config_files, environ)
    caches = cache_store(run, environ)
    if caches is None:
        raise BadConfig(f"recipe {run.recipe.name} reads no dataset, so there is nothing to load")
    with tempfile.TemporaryDirectory(prefix="lead-bench-") as folder:
        rates, threads, cores = _measured(run, caches, Path(folder), seconds)
    console = Console()
    console.print(_table(rates))
    console.print(advice(rates, threads, cores), soft_wrap=True)


def _measured(run: LocalRun, caches: ObjectStore, folder: Path, seconds: float) -> tuple[list[StageRate], int, int]:
    job = local_job(run, FolderStore(folder / "run"), caches, processes=1)
    shape = run.recipe.shape(run.config)
    dataset = open_dataset(job, run.recipe, run.config, caches, folder / "session")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        readers = _readers(dataset)
        rates = [_network(readers), _disk(readers, shape.loader_threads, seconds)]
        rates.append(_decode(dataset, shape.loader_threads, seconds))
        loaded = _loader(run.recipe, run.config, shape, dataset, device)
        rates.append(_hand_over(loaded, shape, seconds))
        rates.append(_step(run.recipe, run.config, shape, next(loaded.batches(0)), device, seconds))
    finally:
        dataset.close()
    return rates, shape.loader_threads, len(os.sched_getaffinity(0))


def _network(readers: Sequence[CacheReader]) -> StageRate:
    """Fills the empty session cache, every shard once."""
    begin = time.perf_counter()
    for reader in readers:
        for entry in reader.manifest.shards:
            reader.session.record(entry.object, 0)
    took_s = time.perf_counter() - begin
    size = sum(entry.object.size for reader in readers for entry in reader.manifest.shards)
    samples = sum(reader.manifest.samples for reader in readers)
    return StageRate("network", samples / took_s, f"{size / took_s / 1e6:.0f} MB/s from the store, {size / 1e6:.0f} MB")


def _disk(readers: Sequence[CacheReader], threads: int, seconds: float) -> StageRate:
    """Reads and checks records that are on the disk."""
    places = [
        (reader, entry.object, slot)
        for reader in readers
        for entry in reader.manifest.shards
        for slot in range(entry.records)
    ]
    rate = _rate(lambda n: places[n % len(places)][0].session.record(*places[n % len(places)][1:]), threads, seconds)
    size = sum(reader.manifest.size_bytes for reader in readers) / max(1, len(places))
    return StageRate("disk", rate, f"{rate * size / 1e6:.0f} MB/s, {size / 1e3:.0f} kB a sample, page cache included")


def _decode(dataset: Dataset, threads: int, seconds: float) -> StageRate:
    """Loads samples as the loader does, without making batches."""
    draw = dataset.samples.epoch_draw(0)

    def load(number: int) -> None:
        for value in dataset.samples.load(int(draw[number % len(draw)]), 0).values():
            decoded(value)

    rate = _rate(load, threads, seconds)
    return StageRate("decode", rate, f"{1e3 * threads / rate:.1f} ms a sample in each of {threads} threads")


def _loader(recipe: Recipe, config: Any, shape: StageShape, dataset: Dataset, device: torch.device) -> Loader:
    size = min(shape.batch_size, len(dataset.samples.epoch_draw(0)))
    return loader_named(shape.loader)(
        dataset.samples, recipe.collate, batch_size=size, seed=shape.seed, threads=shape.loader_threads,
        batches_ahead=shape.batches_ahead, device=device, on_device=on_device_of(recipe, config),
    )  # fmt: skip


def _hand_over(loader: Loader, shape: StageShape, seconds: float) -> StageRate:
    """Takes batches as fast as they come; the first pass is not counted, it makes the memory."""
    endless = itertools.chain.from_iterable(loader.batches(epoch) for epoch in itertools.count())
    for _ in range(shape.batches_ahead + 2):
        next(endless)
    rate = _batch_rate(endless, seconds)
    stats = loader.stats()
    share = stats.copy_s / max(1e-9, stats.copy_s + stats.load_s)
    return StageRate("hand-over", rate, f"the whole loader; {100 * share:.0f}% of its threads' time is `collate`")


def _batch_rate(batches: Iterator[Batch], seconds: float) -> float:
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds or not count:
        batch = next(batches)
        count += len(next(iter(batch.values())))
        del batch
    return count / (time.perf_counter() - begin)


def _step(
    recipe: Recipe, config: Any, shape: StageShape, batch: Batch, device: torch.device, seconds: float
) -> StageRate:
    """Trains on one batch again and again, weights thrown away."""
    model = recipe.model(config).to(device).train()
    optimizer = recipe.optimizer(model, config)
    rows = len(next(iter(batch.values())))

    def once() -> None:
        with autocast(chosen_dtype(shape.precision, device), device):
            loss = recipe.step(model, batch, config).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loss.item()  # waits for the device

    once()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds or not count:
        once()
        count += rows
    return StageRate("step", count / (time.perf_counter() - begin), f"forward, backward and update on {device.type}")


def _rate(work: Callable[[int], object], threads: int, seconds: float) -> float:
    """Returns calls a second of `work` in threads, over about `seconds`."""
    numbers, done, lock = itertools.count(), 0, threading.Lock()
    begin = time.perf_counter()

    def repeat() -> None:
        nonlocal done
        count = 0
        while time.perf_counter() - begin < seconds:
            work(next(numbers))
            count += 1
        with lock:
            done += count

    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(repeat) for _ in range(threads)]:
            future.result()
    return max(1, done) / (time.perf_counter() - begin)


def _readers(dataset: Dataset) -> list[CacheReader]:
    cache = dataset.cache
    return list(cache.values()) if isinstance(cache, Mapping) else [cache]


def _table(rates: Sequence[StageRate]) -> Table:
    table = Table("stage", "samples/s", "times the step", "", title="what each stage does alone", title_justify="left")
    step = rates[-1].samples_per_s
    for rate in rates:
        table.add_row(rate.stage, f"{rate.samples_per_s:.1f}", f"{rate.samples_per_s / step:.1f}", rate.detail)
    return table
