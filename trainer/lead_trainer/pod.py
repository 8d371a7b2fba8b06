"""A pod's main process, `lead pod`: reads the mounted job, does it, and leaves the final report for the kubelet.

A build job, a check and the two steps of a closed loop run in this process; a train job runs in worker processes that
`launcher` starts.
"""

import shutil
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from lead_protocol.exit_codes import ExitCode
from lead_protocol.job import AnyJob, BuildJob, CheckJob, ClosedLoopJob, TrainJob, parse_job
from lead_protocol.progress_record import MAX_RECORD_BYTES, MESSAGE_CHARS, ProgressRecord
from lead_trainer.cpu_limit import cpu_share
from lead_trainer.errors import BadConfig
from lead_trainer.launcher import Ended, Worker, run_workers
from lead_trainer.world import child_environments, visible_gpus


@dataclass(frozen=True)
class PodPaths:
    """Where a pod finds its job and keeps its files."""

    job: Path
    scratch: Path
    session_cache: Path
    termination_log: Path


def run_pod(paths: PodPaths, environ: Mapping[str, str]) -> int:
    """Does the pod's job and returns the exit code; raises BadConfig for a job file that cannot be used."""
    job = read_job(paths.job)
    if isinstance(job, BuildJob):
        from lead_trainer.building import run_build_job  # a train pod's parent must not load the data path

        return run_build_job(job, paths.termination_log, environ)
    if isinstance(job, CheckJob):
        from lead_trainer.checking import run_check_job

        return run_check_job(job, paths.termination_log)
    if isinstance(job, ClosedLoopJob):
        from lead_trainer.closed_loop.pod_steps import run_closed_loop_job

        return run_closed_loop_job(job, paths.termination_log, environ)
    return _run_train_job(job, paths, environ)


def read_job(path: Path) -> AnyJob:
    """Parses the job file; raises BadConfig naming the first wrong key."""
    try:
        return parse_job(path.read_bytes())
    except OSError as error:
        raise BadConfig(f"job file {path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadConfig(f"job file {path}: {where}: {first['msg']}; are operator and image of two versions?") from error


def _run_train_job(job: TrainJob, paths: PodPaths, environ: Mapping[str, str]) -> int:
    processes = job.procs_per_node or max(1, visible_gpus(environ))
    threads = environ.get("OMP_NUM_THREADS", str(cpu_share(processes)))
    reports = [paths.scratch / f"final-report-{local}" for local in range(processes)]
    workers = [
        Worker(worker_argv(paths, report), {**child, "OMP_NUM_THREADS": threads}, report)
        for child, report in zip(child_environments(environ, processes), reports, strict=True)
    ]
    end = run_workers(workers)
    _copy_final_report(job, end, reports[end.local_rank], paths.termination_log)
    return end.code


def worker_argv(paths: PodPaths, report: Path) -> list[str]:
    """Returns the command of one worker process."""
    return [
        sys.executable, "-m", "lead_trainer.engine.worker",
        "--job", str(paths.job),
        "--scratch", str(paths.scratch),
        "--session-cache", str(paths.session_cache),
        "--termination-log", str(report),
    ]  # fmt: skip


def _copy_final_report(job: TrainJob, end: Ended, report: Path, termination_log: Path) -> None:
    """Copies the report of the most significant worker, or writes what is known of one without a report."""
    try:
        if report.is_file() and report.stat().st_size <= MAX_RECORD_BYTES:
            shutil.copyfile(report, termination_log)
        elif end.code != ExitCode.DONE:
            termination_log.write_text(_obituary(job, end).model_dump_json())
    except OSError as error:
        from lead_trainer.report.console import report_error

        report_error(f"the termination log {termination_log} cannot be written: {error}")


def _obituary(job: TrainJob, end: Ended) -> ProgressRecord:
    phase: Literal["Stopped", "Failed"] = "Failed"
    how = f"ended with code {end.code}"
    if end.code == ExitCode.STOPPED:
        phase, how = "Stopped", "got a stop signal before its first step; there was nothing to commit"
    elif end.code > 128:
        name = signal.Signals(end.code - 128).name
        how = f"was killed by {name}" + ("; too little memory is the usual reason" if name == "SIGKILL" else "")
    message = f"worker process {end.local_rank} {how}"
    return ProgressRecord(
        attempt=job.attempt, seq=0, phase=phase, epoch=0, epochs=job.epochs, step=0, steps=0,
        message=message[:MESSAGE_CHARS],
    )  # fmt: skip
