"""The benchmark of the data path: the same samples through every system, each in a process of its own.

    python -m bench.data.run [--quick] [--samples 5008] [--rounds 5] [--systems packed litdata …]
                             [--states filling warm second "get only" cold far] [--touched] [--out outputs/bench/data]

Prints a table, and writes results.json and data.png below --out. See tests/bench/README.md.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench.data.bench_venv import bench_python, environment
from bench.data.jobs import (
    BOUNDS,
    FAR_BYTES_PER_S,
    FAR_LATENCY_S,
    FROM_STORE,
    GETS,
    OTHERS,
    OURS,
    SYSTEMS,
    Figures,
    Job,
)
from bench.data.our_loaders import BUCKET, DIGEST_FILE, build_cache, upload
from bench.data.report import Result, printed
from bench.data.samples import QUALITY, digest_of_all, shard_bytes
from lead_testing.minio_server import MinioServer, minio_program
from lead_testing.store_proxy import StoreProxy

STATES = ("filling", "warm", "second", "get only", "cold", "far")
FULL, QUICK = 5008, 512
# A freed block stays with the process, so that its pages are touched once; 32 MiB is the most glibc allows.
TOUCHED = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**32), "MALLOC_TOP_PAD_": str(2**26)}


Runners = dict[str, subprocess.Popen[str]]


@dataclass(frozen=True)
class Bench:
    """What every run of one call shares."""

    data: Path
    scratch: Path
    runners: Runners
    job: Job
    digest: str  # of an epoch
    near: str = ""  # endpoints
    far: str = ""
    proxy: StoreProxy | None = None


def main() -> None:
    """Measures what the command line asks for."""
    options = _options()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    python = bench_python()
    data = samples_written(out / f"samples-{options.samples}-q{options.quality}", options, python)
    cores = tuple(sorted(os.sched_getaffinity(0)))[: options.cores]
    job = Job("", str(data), "", options.samples, 1, options.batch, len(cores), touched=options.touched,
              pinned=not options.pageable, cores=cores)  # fmt: skip
    digest = digest_of_all(json.loads((data / "digests.json").read_text()))
    results: list[Result] = []
    with (
        runners(python, out / "libraries.log", options.systems, touched=options.touched) as started,
        stores(Bench(data, out / "scratch", started, job, digest), options.states) as bench,
    ):
        if not options.no_digests:
            for system in options.systems:
                refuse_other_samples(bench, system)
        for number in range(options.rounds):
            turn = number % len(options.systems)
            for system in (*options.systems[turn:], *options.systems[:turn]):
                results += measured(bench, system, options.states, number)
                (out / "results.json").write_text(json.dumps([asdict(result) for result in results], indent=1))
    shutil.rmtree(bench.scratch, ignore_errors=True)
    cache_bytes = sum(path.stat().st_size for path in (data / "ours").rglob("*") if path.is_file())
    print(printed(results, title(options), cache_bytes))
    subprocess.run(
        [python, "-m", "bench.data.picture", out / "results.json", out / "data.png"], env=environment(), check=True
    )


def title(options: argparse.Namespace) -> str:
    """Returns what was measured, in words."""
    memory = "memory touched before" if options.touched else "memory as each system takes it"
    batches = "" if options.pageable else ", batches in memory that a GPU can copy from"
    return f"{options.samples} samples of JPEG quality {options.quality}, {options.rounds} rounds, {memory}{batches}"


def samples_written(data: Path, options: argparse.Namespace, python: Path) -> Path:
    """Returns the folder with every format, written at the first call."""
    if not (data / "digests.json").exists():
        shutil.rmtree(data, ignore_errors=True)
        words = [str(options.samples), str(options.quality)]
        subprocess.run([python, "-m", "bench.data.write_formats", data, *words], env=environment(), check=True)
    if not (data / DIGEST_FILE).exists():
        build_cache(data, shard_bytes(options.samples))
    return data


@contextlib.contextmanager
def stores(bench: Bench, states: list[str]) -> Iterator[Bench]:
    """Serves the formats from MinIO, near and through a proxy, where a state asks for it."""
    if not {"cold", "far"} & {*states}:
        yield bench
        return
    with MinioServer(minio_program(), bench.scratch.parent / "minio") as server:
        client = server.admin()
        if not client.bucket_exists(BUCKET):
            client.make_bucket(BUCKET)
        readable = {"Effect": "Allow", "Principal": {"AWS": ["*"]}, "Action": ["s3:GetObject"],
                    "Resource": [f"arn:aws:s3:::{BUCKET}/*"]}  # fmt: skip
        client.set_bucket_policy(BUCKET, json.dumps({"Version": "2012-10-17", "Statement": [readable]}))  # for curl
        for name in ("ours", "litdata", "mds", "wds"):
            upload(client, bench.data, name)
        with StoreProxy(server.endpoint, latency_s=FAR_LATENCY_S, bytes_per_s=FAR_BYTES_PER_S) as proxy:
            yield replace(bench, near=server.endpoint, far=proxy.endpoint, proxy=proxy)
    shutil.rmtree(bench.scratch.parent / "minio", ignore_errors=True)


def refuse_other_samples(bench: Bench, system: str) -> None:
    """Compares the digests of two epochs and of a second run; raises RuntimeError where a sample is another."""
    if system in BOUNDS:
        return
    folder = fresh(bench.scratch)
    endpoint = bench.near if system in FROM_STORE else ""
    for epochs in (2, 1):
        job = replace(bench.job, system=system, cache=str(folder), epochs=epochs, digests=True, endpoint=endpoint)
        found = [epoch.digest for epoch in run(bench, job).epochs]
        if {*found} != {bench.digest}:
            raise RuntimeError(f"{system} delivered other samples: digests {found}, expected {bench.digest}")


def measured(bench: Bench, system: str, states: list[str], number: int) -> Iterator[Result]:
    """Yields one round of a system in every state it has."""
    job, load = replace(bench.job, system=system), os.getloadavg()[0]
    if {"filling", "warm", "second"} & {*states} or system in BOUNDS:
        folder = fresh(bench.scratch)
        first = run(bench, replace(job, cache=str(folder), epochs=2))
        yield Result.of(system, "filling", number, first, 0, load)
        yield Result.of(system, "warm", number, first, 1, load)
        if "second" in states:
            yield Result.of(system, "second", number, run(bench, replace(job, cache=str(folder))), 0, load)
    if system not in FROM_STORE:
        return
    if "get only" in states and system in GETS:
        folder = fresh(bench.scratch)
        got = run(bench, replace(job, cache=str(folder), epochs=2, threads=1, get_only=True))
        yield Result.of(system, "get only", number, got, 1, load)
    if "cold" in states:
        near = replace(job, cache=str(fresh(bench.scratch)), endpoint=bench.near)
        yield Result.of(system, "cold", number, run(bench, near), 0, load)
    if "far" in states and bench.proxy is not None:
        folder = fresh(bench.scratch)
        for state in ("far", "far again"):  # a second run on the node
            before = bench.proxy.sent_bytes
            figures = run(bench, replace(job, cache=str(folder), endpoint=bench.far))
            yield Result.of(system, state, number, figures, 0, load, bench.proxy.sent_bytes - before)


def run(bench: Bench, job: Job) -> Figures:
    """Runs a job in a process of its own; raises RuntimeError with what it printed where it fails."""
    runner = bench.runners["ours" if job.system in OURS else "others"]
    assert runner.stdin and runner.stdout
    runner.stdin.write(job.to_json() + "\n")
    runner.stdin.flush()
    return Figures.from_json(runner.stdout.readline() or json.dumps({"error": f"{job.system}: its runner has ended"}))


@contextlib.contextmanager
def runners(python: Path, log: Path, systems: list[str], *, touched: bool) -> Iterator[Runners]:
    """Starts what forks the measured processes in either environment."""
    with contextlib.ExitStack() as stack:
        printed_by_libraries = stack.enter_context(log.open("w"))
        started = {}
        for name, program, known in (("ours", Path(sys.executable), OURS), ("others", python, OTHERS)):
            words = [str(program), "-m", "bench.data.one_run", name, *({*systems} & {*known})]
            runner = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=printed_by_libraries, text=True,
                env=environment(**(TOUCHED if touched else {})),
            )  # fmt: skip
            started[name] = stack.enter_context(runner)
        yield started
        for runner in started.values():
            assert runner.stdin
            runner.stdin.close()


def fresh(scratch: Path) -> Path:
    """Returns an empty folder for a node's cache."""
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / "cache").mkdir(parents=True)
    return scratch / "cache"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} samples instead of {FULL}")
    parser.add_argument("--samples", type=int, default=0, help="a multiple of the batch times the cores")
    parser.add_argument(
        "--quality", type=int, default=QUALITY, help="of the JPEGs: 30 is LEAD's on a cluster, 90 elsewhere"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--states", nargs="+", choices=STATES, default=list(STATES))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--touched", action="store_true", help="memory whose pages were written before, for all")
    parser.add_argument("--pageable", action="store_true", help="DataLoaders' batches stay where no GPU copies from")
    parser.add_argument("--no-digests", action="store_true", help="leave out the comparison of every sample")
    parser.add_argument("--out", type=Path, default=Path("outputs/bench/data"))
    options = parser.parse_args()
    options.samples = options.samples or (QUICK if options.quick else FULL)
    if options.samples % (options.batch * options.cores):
        parser.error(f"--samples: found {options.samples}, expected a multiple of {options.batch * options.cores}")
    return options


if __name__ == "__main__":
    main()
