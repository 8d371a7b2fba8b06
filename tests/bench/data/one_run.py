"""The measured processes of one environment: one is forked a job, so that imports are made once and measured never.

    python -m bench.data.one_run ours|others [SYSTEM …]

Reads a Job a line, answers with a line of Figures, or of the error. A process opens one system's loader and takes every
batch of some epochs. It takes them as a training loop with a GPU step of no length would and does not read them, which
spares loaders that hand over shared memory the first touch of it in this process.
"""

import contextlib
import json
import os
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from bench.data.jobs import Epoch, EpochFigures, Figures, Job
from bench.data.samples import digest, digest_of_all

TIMEOUT_S = 1800


def one_epoch(epochs: Epoch, number: int, job: Job) -> EpochFigures:
    """Takes every batch; raises RuntimeError unless each sample came exactly once."""
    cpu_before_s, faults_before = used()
    begin = before = time.perf_counter()
    gaps: list[float] = []
    indices: list[int] = []
    digests: list[str] = []
    for batch in epochs(number):
        now = time.perf_counter()
        gaps.append(now - before)
        before = now
        rows = batch["index"].tolist()
        indices += rows
        if job.digests:
            digests += [digest({key: value[row] for key, value in batch.items()}) for row in range(len(rows))]
        del batch  # or the memory it lies in could not be used again
    took_s = time.perf_counter() - begin
    cpu_s, faults = used()
    if sorted(indices) != list(range(job.count)):
        raise RuntimeError(f"{job.system}: {len(indices)} samples, {len(set(indices))} of {job.count} different ones")
    ordered = sorted(gaps)
    return EpochFigures(
        samples=len(indices),
        seconds=took_s,
        first_batch_s=gaps[0],
        gap_p50_s=statistics.median(gaps),
        gap_p99_s=ordered[int(0.99 * (len(gaps) - 1))],
        gap_max_s=ordered[-1],
        cpu_ms=1000 * (cpu_s - cpu_before_s) / len(indices),
        faults=(faults - faults_before) / len(indices),
        digest=digest_of_all(digests) if digests else "",
    )


def used() -> tuple[float, int]:
    """Returns CPU seconds and minor page faults so far of this process and its descendants, ended ones too."""
    of_process: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            of_process[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
    ours = {os.getpid()}
    while more := {pid for pid, fields in of_process.items() if int(fields[1]) in ours} - ours:
        ours |= more
    counts = [[int(of_process[pid][place]) for place in (7, 8, 11, 12, 13, 14)] for pid in ours]
    ticks = sum(sum(count[2:]) for count in counts)
    return ticks / os.sysconf("SC_CLK_TCK"), sum(sum(count[:2]) for count in counts)


def figures_of(job: Job, open_epochs: Callable[[Job], Epoch]) -> Figures:
    """Runs the job in this process."""
    signal.alarm(TIMEOUT_S)
    os.sched_setaffinity(0, job.cores)
    begin = time.perf_counter()
    epochs = open_epochs(job)
    opened_s = time.perf_counter() - begin
    return Figures([one_epoch(epochs, number, job) for number in range(job.epochs)], opened_s)


def answered(job: Job, open_epochs: Callable[[Job], Epoch]) -> str:
    """Runs the job in a forked process; returns its line."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(2, 1)  # what libraries print is no answer
        try:
            answer = json.dumps(asdict(figures_of(job, open_epochs)))
        except Exception:
            answer = json.dumps({"error": traceback.format_exc()})
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    return answer or json.dumps({"error": f"{job.system} ended with status {status}"})


def main() -> None:
    """Answers jobs until there are no more."""
    loaders = import_module(f"bench.data.{'our' if sys.argv[1] == 'ours' else 'other'}_loaders")
    for system in sys.argv[2:]:
        import_module(loaders.MODULES.get(system, "torch"))
    for line in sys.stdin:
        print(answered(Job.from_json(line), loaders.open_epochs), flush=True)


if __name__ == "__main__":
    main()
