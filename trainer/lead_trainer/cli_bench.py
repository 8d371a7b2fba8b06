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
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from lead_protocol.manifests import StoredObject
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.cli_train import LocalRun, cache_store, local_job, local_run, session_cache_folder
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.loader import Loader, on_device_of
from lead_trainer.data.patient_source import decoded_sample
from lead_trainer.data.process_loader import loader_named
from lead_trainer.data.session_cache import open_session_cache
from lead_trainer.data.shards_ahead import AT_ONCE
from lead_trainer.data.shared_counters import SharedCounters
from lead_trainer.engine.dataset import Dataset, open_dataset
from lead_trainer.engine.precision import autocast, chosen_dtype
from lead_trainer.errors import BadConfig, StuckLoader
from lead_trainer.recipes.recipe import Batch, Recipe, StageShape
from lead_trainer.report.console import open_log

AMPLE = 1.2  # a stage this much faster than the step does not hold it up


@dataclass(frozen=True)
class StageRate:
    """What one stage does alone."""

    stage: str  # network | disk | decode | hand-over | step
    samples_per_s: float
    detail: str = ""


def advice(rates: Sequence[StageRate], threads: int, cores: int, kind: str = "threads") -> str:
    """Returns one sentence: what bounds the run, and what would help; `kind`: what its `threads` are."""
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
            f"Bound by decoding: {threads} {kind} on {cores} cores decode {speed['decode']:.0f} samples/s, the step "
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
    shape, disk = run.recipe.shape(run.config), session_cache_folder(run, environ)
    if disk:
        disk.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lead-bench-", dir=disk) as folder:
        rates = _measured(run, shape, caches, Path(folder), seconds)
    console = Console()
    console.print(_table(rates))
    cores = len(os.sched_getaffinity(0))
    console.print(advice(rates, shape.loader_threads, cores, _kind(shape)), soft_wrap=True)


def _kind(shape: StageShape) -> str:
    return "processes" if shape.loader == "process" else "threads"


def _measured(run: LocalRun, shape: StageShape, caches: ObjectStore, folder: Path, seconds: float) -> list[StageRate]:
    job = local_job(run, FolderStore(folder / "run"), caches, processes=1)
    session = open_session_cache(shape.session_cache_backend, caches, folder / "session", job.session_cache_bytes)
    rates = [_network([CacheReader(caches, each.digest, session) for each in job.datasets], shape, seconds)]
    session.close()
    dataset = open_dataset(job, run.recipe, run.config, caches, folder / "session")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        rates.append(_disk(_readers(dataset), shape.loader_threads, seconds))
        rates.append(_decode(dataset, shape, seconds))
        loaded = _loader(run.recipe, run.config, shape, dataset, device)
        rates.append(_hand_over(loaded, shape, seconds))
        rates.append(_step(run.recipe, run.config, shape, next(loaded.batches(0)), device, seconds))
    finally:
        dataset.close()
    return rates


def _network(readers: Sequence[CacheReader], shape: StageShape, seconds: float) -> StageRate:
    """Fills the empty session cache as an epoch does: every shard that there is room for, a few at once.

    Where none is kept whole, records are read one by one, for about `seconds`.
    """
    session, begin = readers[0].session, time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        shards = [(reader, number) for reader in readers for number in range(len(reader.manifest.shards))]
        for _ in pool.map(lambda shard: shard[0].fetch_shard(shard[1]), shards):
            pass
    if not session.stats().fetched_bytes:
        begin = time.perf_counter()

        def read(place: tuple[CacheReader, StoredObject, int]) -> None:
            if time.perf_counter() - begin < seconds:
                session.record(*place[1:])

        with ThreadPoolExecutor(shape.loader_threads) as pool:
            for _ in pool.map(read, _places(readers)):
                pass
    took_s, fetched = time.perf_counter() - begin, session.stats().fetched_bytes
    size = sum(entry.object.size for reader in readers for entry in reader.manifest.shards)
    samples = sum(reader.manifest.samples for reader in readers) * fetched / size
    told = f"{fetched / took_s / 1e6:.0f} MB/s from the store, {100 * fetched / size:.0f}% of {size / 1e6:.0f} MB"
    return StageRate("network", samples / took_s, told)


def _places(readers: Sequence[CacheReader]) -> list[tuple[CacheReader, StoredObject, int]]:
    """Returns shard and slot of every record."""
    return [
        (reader, entry.object, slot)
        for reader in readers
        for entry in reader.manifest.shards
        for slot in range(entry.records)
    ]


def _disk(readers: Sequence[CacheReader], threads: int, seconds: float) -> StageRate:
    """Reads and checks records that are on the disk."""
    places = _places(readers)
    rate = _rate(lambda n: places[n % len(places)][0].session.record(*places[n % len(places)][1:]), threads, seconds)
    size = sum(reader.manifest.size_bytes for reader in readers) / max(1, len(places))
    return StageRate("disk", rate, f"{rate * size / 1e6:.0f} MB/s, {size / 1e3:.0f} kB a sample, page cache included")


def _decode(dataset: Dataset, shape: StageShape, seconds: float) -> StageRate:
    """Loads samples as the loader does, without making batches."""
    draw = dataset.samples.epoch_draw(0)

    def load(number: int) -> None:
        index = int(draw[number % len(draw)])
        decoded_sample(dataset.samples, index, dataset.samples.load(index, 0))

    count = shape.loader_threads
    rate = (_rate_of_processes if shape.loader == "process" else _rate)(load, count, seconds)
    return StageRate("decode", rate, f"{1e3 * count / rate:.1f} ms a sample in each of {count} {_kind(shape)}")


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


def _rate_of_processes(work: Callable[[int], object], processes: int, seconds: float) -> float:
    """Returns calls a second of `work` in forked processes, over about `seconds`."""
    done, begin = SharedCounters(["calls"]), time.perf_counter()

    def repeat(first: int) -> None:
        for number in itertools.count(first, processes):
            work(number)
            done.add({"calls": 1})
            if time.perf_counter() - begin > seconds:
                return

    children = [get_context("fork").Process(target=repeat, args=(first,)) for first in range(processes)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    if any(child.exitcode for child in children):
        raise StuckLoader("a process that decodes samples ended with an error, which is told above")
    return done.read()["calls"] / (time.perf_counter() - begin)


def _readers(dataset: Dataset) -> list[CacheReader]:
    cache = dataset.cache
    return list(cache.values()) if isinstance(cache, Mapping) else [cache]


def _table(rates: Sequence[StageRate]) -> Table:
    table = Table("stage", "samples/s", "times the step", "", title="what each stage does alone", title_justify="left")
    step = rates[-1].samples_per_s
    for rate in rates:
        table.add_row(rate.stage, f"{rate.samples_per_s:.1f}", f"{rate.samples_per_s / step:.1f}", rate.detail)
    return table
