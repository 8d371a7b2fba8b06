"""Runs other programs: their output goes to a log file, a failure is one error with the log's last lines."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lead_testing.local_cluster.errors import StepFailed
from lead_testing.local_cluster.progress import say

LAST_LINES = 15
DOWNLOAD_PAUSES_S = (5, 20)


def run_download(
    argv: Sequence[str | Path], log: Path, *, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> None:
    """Runs what downloads, and keeps what it has got, up to three times: networks fail for moments."""
    for pause in DOWNLOAD_PAUSES_S:
        try:
            return run_logged(argv, log, cwd=cwd, environment=environment)
        except StepFailed as error:
            say(f"  `{argv[0]}` failed and is tried again in {pause} s: {str(error).splitlines()[-1].strip()}")
            time.sleep(pause)
    return run_logged(argv, log, cwd=cwd, environment=environment)


def run_logged(
    argv: Sequence[str | Path],
    log: Path,
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Runs a program to its end with its output appended to `log`; raises StepFailed with the last lines."""
    log.parent.mkdir(parents=True, exist_ok=True)
    words = [str(word) for word in argv]
    with log.open("ab") as output:
        output.write(f"$ {' '.join(words)}\n".encode())
        output.flush()
        done = subprocess.run(
            words, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
        )
    if done.returncode != 0:
        tail = "\n".join("    " + line for line in log.read_text(errors="replace").splitlines()[-LAST_LINES:])
        raise StepFailed(f"`{' '.join(words[:6])}` ended with {done.returncode}; its log {log} closes with\n{tail}")


def read_output(
    argv: Sequence[str | Path], *, stdin: str | None = None, cwd: Path | None = None, timeout_s: float = 120
) -> str:
    """Returns what a program prints; raises StepFailed with its error output where it fails."""
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words, input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL,
            cwd=cwd, capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise StepFailed(f"`{' '.join(words[:8])}` gave no answer within {timeout_s:.0f} s") from error
    if done.returncode != 0:
        raise StepFailed(f"`{' '.join(words[:8])}` ended with {done.returncode}: {done.stderr.strip()[-1500:]}")
    return done.stdout


def try_output(argv: Sequence[str | Path], *, timeout_s: float = 60) -> str:
    """Returns what a program prints, or nothing where it fails: for probes and for tearing down what may be gone."""
    try:
        return read_output(argv, timeout_s=timeout_s)
    except (StepFailed, FileNotFoundError):
        return ""
