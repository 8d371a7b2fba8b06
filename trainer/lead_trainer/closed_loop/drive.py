"""One evaluation on this machine: a command of the user's drives with a bundle of weights and writes its results.

What the command gets are the environment variables of `lead_protocol.environment`. `summary.json` comes last, by a
rename: an evaluation exists when it does, and an interrupted one starts again.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from lead_protocol import environment
from lead_protocol.leaderboard_results import to_numbers
from lead_trainer.closed_loop.result_folder import Evaluation, read_results
from lead_trainer.errors import BadConfig, BadData

SUMMARY = "summary.json"
CHECKPOINT, RESULTS, SIMULATOR_LOG = "checkpoint", "results", "simulator.log"
PROGRESS_S = 30.0  # between two lines while the simulator drives
GRACE_S = 30.0  # between SIGTERM and SIGKILL of a simulator that is out of time


@dataclass(frozen=True, kw_only=True)
class Drive:
    """What is driven: the command, the folder of this evaluation with the bundle in it, and how long it may take."""

    folder: Path
    command: str
    routes: str
    seed: int
    epoch: int
    timeout_s: float


def is_done(folder: Path) -> bool:
    """Returns whether an evaluation is complete."""
    return (folder / SUMMARY).is_file()


def drive(given: Drive, environ: Mapping[str, str]) -> Evaluation:
    """Runs the command, reads its results and writes `summary.json`; raises BadConfig or BadData."""
    argv = _argv(given.command)
    results = given.folder / RESULTS
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    variables = {
        **environ,
        environment.CLOSED_LOOP_CHECKPOINT: str((given.folder / CHECKPOINT).resolve()),
        environment.CLOSED_LOOP_RESULTS: str(results.resolve()),
        environment.CLOSED_LOOP_ROUTES: given.routes,
        environment.CLOSED_LOOP_SEED: str(given.seed),
        environment.CLOSED_LOOP_EPOCH: str(given.epoch),
    }
    _run(argv, variables, given)
    evaluation = read_results(results)
    write_summary(given.folder, evaluation)
    return evaluation


def write_summary(folder: Path, evaluation: Evaluation) -> None:
    """Writes `summary.json` whole, or not at all."""
    comfort = None if evaluation.comfort is None else asdict(evaluation.comfort)
    document = {"summary": evaluation.summary.model_dump(), "comfort": comfort}
    part = folder / f"{SUMMARY}.part"
    part.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    part.replace(folder / SUMMARY)


def numbers_of(folder: Path) -> dict[str, float]:
    """Returns the numbers of a complete evaluation by name; raises BadData where `summary.json` is corrupt."""
    try:
        document = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        return {name: float(value) for name, value in document["summary"].items() if isinstance(value, int | float)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadData(f"{folder / SUMMARY} is no summary of an evaluation ({error}); remove {folder}") from None


def all_numbers(evaluation: Evaluation) -> dict[str, float]:
    """Returns every number of an evaluation by name, comfort included."""
    comfort = {} if evaluation.comfort is None else asdict(evaluation.comfort)
    return {**to_numbers(evaluation.summary), **comfort}


def _argv(command: str) -> list[str]:
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise BadConfig(f"--command: found {command!r}, expected a command line ({error})") from None
    if not argv or shutil.which(argv[0]) is None:
        raise BadConfig(f"--command: found {command!r}, expected a program that is installed, with its arguments")
    return argv


def _run(argv: list[str], variables: Mapping[str, str], given: Drive) -> None:
    """Runs the simulator in a process group of its own until it ends; raises BadData where it fails or is too slow."""
    log, began = given.folder / SIMULATOR_LOG, time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(argv, env=dict(variables), stdout=output, stderr=output, start_new_session=True)
        try:
            while True:
                left_s = given.timeout_s - (time.monotonic() - began)
                try:
                    code = process.wait(timeout=max(0.0, min(PROGRESS_S, left_s)))
                    break
                except subprocess.TimeoutExpired:
                    if time.monotonic() - began >= given.timeout_s:
                        raise BadData(
                            f"the simulator did not end within --timeout {given.timeout_s:g} s; its output: {log}"
                        ) from None
                    print(f"driving for {time.monotonic() - began:.0f} s; output in {log}", file=sys.stderr)
        finally:
            _end(process)
    if code != 0:
        raise BadData(f"the simulator ended with exit status {code}; its output: {log}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ends a simulator and all that it started; one that ignores SIGTERM for GRACE_S is killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:  # all of the group have ended
            break
        try:
            process.wait(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
