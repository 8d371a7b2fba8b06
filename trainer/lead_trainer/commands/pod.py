"""`lead pod`: the job mounted in this pod; started by the operator."""

from collections.abc import Mapping
from pathlib import Path

from lead_trainer.pod import PodPaths, run_pod


def do_job(job: Path, scratch: Path, session_cache: Path, termination_log: Path, environ: Mapping[str, str]) -> int:
    """Does the pod's job and returns the exit code."""
    return run_pod(PodPaths(job, scratch, session_cache, termination_log), environ)
