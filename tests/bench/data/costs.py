"""What parts of the data path cost: checksums, the S3 client, resuming, eight ranks on a node, a second core.

    python -m bench.data.costs [--samples 5008] [--rounds 5] [--out outputs/bench/data]

Every figure is the median of the rounds; where a goal is a ratio, both its sides were measured in the same round.
"""

import argparse
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import xxhash
from rich.console import Console
from rich.table import Table

from bench.data.bench_venv import bench_python
from bench.data.jobs import Job
from bench.data.our_loaders import BUCKET, Samples, open_cache, open_epochs, store_of, target_of, upload
from bench.data.run import FULL, samples_written
from bench.data.samples import QUALITY
from lead_protocol.store.object_store import ObjectStore
from lead_protocol.store.s3_requests import Deadline, Request, SignedRequests
from lead_protocol.store.s3_target import S3Limits
from lead_testing.minio_server import MinioServer, minio_program
from lead_testing.store_proxy import StoreProxy
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.loader import Loader
from lead_trainer.data.sample_order import epoch_order
from lead_trainer.data.session_cache import open_session_cache
from lead_trainer.recipes.lead.dataset_collate import collate

RANKS = 8
RANGE_BYTES = S3Limits.part_bytes
STREAM_S = 60.0
MILLION = 10**6
SHARD_RECORDS = 1150  # of LEAD's samples in 128 MiB

GOALS = {
    "checksum: share of a delivered sample's CPU, %": "≤ 2",
    "S3 client: CPU a sample, as shards are streamed, µs": "≤ 40",
    "a shard on the node, SHA-256 and disk included: CPU a sample, µs": "",
    "8 ranks of a node: bytes from the store ÷ the cache's": "≤ 1.01",
    "first batch from the middle of an epoch, opening included, s": "≤ 1",
    "order of an epoch of a million samples, s": "≤ 1",
    "two cores ÷ one, delivered warm": "≥ 1.8",
}


def main() -> None:
    """Measures and prints."""
    options = _options()
    data = samples_written(options.out / f"samples-{options.samples}-q{options.quality}", options, bench_python())
    with tempfile.TemporaryDirectory(prefix="lead-costs-", dir=options.out) as name, served(data, Path(name)) as near:
        job = Job("packed", str(data), "", options.samples, 1, 8, 1, endpoint=near)
        rounds = [one_round(job, Path(name) / "scratch") for _ in range(options.rounds)]
    table = Table("what", "median", "least … most", "goal", title=f"{options.samples} samples, {options.rounds} rounds")
    for what, goal in GOALS.items():
        values = [each[what] for each in rounds]
        table.add_row(what, f"{statistics.median(values):.3g}", f"{min(values):.3g} … {max(values):.3g}", goal)
    Console(width=120).print(table)


def one_round(job: Job, scratch: Path) -> dict[str, float]:
    """Returns every figure once."""
    values = []
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    store = store_of(job)
    values.append(100 * checksum_s(job, store) / delivered_cpu_s(job, scratch / "warm"))
    values.append(1e6 * streamed_cpu_s(job, store))
    values.append(1e6 * shards_cpu_s(job, store, scratch / "shards"))
    values.append(bytes_of_ranks(job, scratch / "ranks"))
    values.append(resumed_s(job, scratch / "warm"))
    values.append(taken(lambda: epoch_order(np.arange(MILLION), 0, 1, np.arange(MILLION) // SHARD_RECORDS)))
    values.append(second_core(job, scratch / "warm"))
    return dict(zip(GOALS, values, strict=True))


def checksum_s(job: Job, store: ObjectStore) -> float:
    """Returns what hashing a record takes, in seconds; the records are not in the processor's cache."""
    reader = opened(job, store, None)
    records = [np.frombuffer(store.get_range(shard.object.key, 0, shard.object.size), np.uint8)
               for shard in reader.manifest.shards]  # fmt: skip
    size = sum(record.size for record in records) // job.count
    pieces = [one[at : at + size].data for one in records for at in range(0, one.size - size, size)]
    return taken(lambda: [xxhash.xxh3_64_intdigest(piece) for piece in pieces]) / len(pieces)


def delivered_cpu_s(job: Job, cache: Path) -> float:
    """Returns the CPU seconds of a warm sample, decoded and handed over."""
    epochs = open_epochs(replace(job, cache=str(made(cache))))
    for batch in epochs(0):
        del batch
    before = time.process_time()
    for batch in epochs(1):
        del batch
    return (time.process_time() - before) / job.count


def streamed_cpu_s(job: Job, store: ObjectStore) -> float:
    """Returns the CPU seconds a sample of our S3 client alone: ranges, dropped as they come."""
    target = target_of(job)
    requests = SignedRequests(target, S3Limits())
    shards = [shard.object for shard in opened(job, store, None).manifest.shards]
    before = time.process_time()
    for shard in shards:
        for at in range(0, shard.size, RANGE_BYTES):
            span = f"bytes={at}-{min(at + RANGE_BYTES, shard.size) - 1}"
            request = Request("GET", f"{target.prefix}/{shard.key}", headers={"Range": span})
            with requests.stream(request, Deadline(STREAM_S)) as (_, pieces):
                for piece in pieces:
                    del piece
    return (time.process_time() - before) / job.count


def shards_cpu_s(job: Job, store: ObjectStore, cache: Path) -> float:
    """Returns the CPU seconds a sample of bringing shards to the node: fetched, verified, written and synced."""
    reader = opened(job, store, made(cache))
    before = time.process_time()
    for number in range(len(reader.manifest.shards)):
        if not reader.fetch_shard(number):
            raise RuntimeError(f"shard {number} was not kept in {cache}: is the disk full?")
    return (time.process_time() - before) / job.count


def bytes_of_ranks(job: Job, cache: Path) -> float:
    """Returns what RANKS processes that share a node's cache take from the store, in sizes of the cache's shards."""
    made(cache)
    with StoreProxy(job.endpoint) as proxy:
        spawn = multiprocessing.get_context("spawn")
        jobs = [(replace(job, cache=str(cache), endpoint=proxy.endpoint), rank) for rank in range(RANKS)]
        with spawn.Pool(RANKS) as pool:
            pool.starmap(rank_reads, jobs)
        shards = opened(job, store_of(job), None).manifest.shards
        return proxy.sent_bytes / sum(shard.object.size for shard in shards)


def rank_reads(job: Job, rank: int) -> None:
    """Fetches one rank's share of the samples, in an order of its own."""
    samples = Samples(opened(job, store_of(job), Path(job.cache)))
    for index in epoch_order(np.arange(rank, len(samples), RANKS), rank, 0):
        samples.got(int(index))
    if samples.stats().degraded:
        raise RuntimeError(f"rank {rank} could not use {job.cache}: is the disk full?")


def resumed_s(job: Job, cache: Path) -> float:
    """Returns the seconds from opening a warm cache to the first batch of the middle of an epoch."""
    begin = time.perf_counter()
    samples = Samples(opened(job, store_of(job), cache))
    loader = Loader(samples, collate, batch_size=job.batch, seed=0)
    batches = loader.batches(1, len(samples) // job.batch // 2)
    next(batches)
    return time.perf_counter() - begin  # and not until the threads have stopped


def second_core(job: Job, cache: Path) -> float:
    """Returns the rate of two threads on two cores in rates of one on one."""
    rates, cores = [], sorted(os.sched_getaffinity(0))
    try:
        for count in (1, 2):
            os.sched_setaffinity(0, cores[:count])
            epochs = open_epochs(replace(job, cache=str(cache), threads=count))
            for number in (1, 2):
                took_s = taken(lambda epochs=epochs, number=number: [None for _ in epochs(number)])  # type: ignore[misc]
            rates.append(1 / took_s)
    finally:
        os.sched_setaffinity(0, cores)
    return rates[1] / rates[0]


def opened(job: Job, store: ObjectStore, cache: Path | None) -> CacheReader:
    """Returns a reader of the benchmark's cache over a packed session cache, or over none."""
    return open_cache(job, store, open_session_cache("packed", store, cache, 0))


def taken(work: Callable[[], object]) -> float:
    """Returns how many seconds a call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def made(folder: Path) -> Path:
    """Returns a folder that is there."""
    folder.mkdir(exist_ok=True)
    return folder


@contextmanager
def served(data: Path, folder: Path) -> Iterator[str]:
    """Yields the endpoint of a MinIO that has our cache."""
    with MinioServer(minio_program(), folder / "minio") as server:
        client = server.admin()
        client.make_bucket(BUCKET)
        upload(client, data, "ours")
        yield server.endpoint


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=FULL)
    parser.add_argument("--quality", type=int, default=QUALITY)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("outputs/bench/data"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
