"""Runs other programs: their output goes to a log file, a failure is one error with the log's last lines."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from lead_testing.local_cluster.errors import StepFailed

LAST_LINES = 15


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
