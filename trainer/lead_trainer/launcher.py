"""The parent of a pod's worker processes: starts them, passes signals on, and ends with their exit code.

Standard library only: the parent of eight GPU processes must not hold a CUDA context or the memory of torch. Why not
torchrun: its agent ends with code 1 whatever its workers ended with (64, 75, 79 … are what the operator decides by),
and it kills them 30 s after SIGTERM, in the middle of a commit. The workers do not know the difference: they read the
same environment that torchrun writes, and `torchrun -m lead_trainer train …` starts them as well.
"""

import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lead_protocol.exit_codes import ExitClass, ExitCode, classify_exit_code

PEER_GRACE_S = 10.0  # after one worker failed; the others cannot commit without it


@dataclass(frozen=True)
class Worker:
    """How to start one worker process; `report` is the file in which it leaves its last record."""

    argv: Sequence[str]
    environ: Mapping[str, str]
    report: Path


@dataclass(frozen=True)
class Ended:
    """How one worker process ended."""

    local_rank: int
    code: int


def run_workers(workers: Sequence[Worker], *, peer_grace_s: float = PEER_GRACE_S) -> Ended:
    """Runs all workers to their end and returns the most significant of their ends."""
    for worker in workers:
        worker.report.parent.mkdir(parents=True, exist_ok=True)
        worker.report.unlink(missing_ok=True)
    children: list[subprocess.Popen[bytes]] = []
    with _signals_passed_to(children) as passed:
        for worker in workers:
            children.append(subprocess.Popen(list(worker.argv), env=dict(worker.environ)))
        if passed.stop_asked:  # while not all of them were there
            _signal_all(children, signal.SIGTERM)
        return most_significant(_wait_for_all(children, peer_grace_s, lambda: passed.stop_asked))


def most_significant(ends: Sequence[Ended]) -> Ended:
    """Returns the end that explains the others: a user's mistake, too large a step, a crash, what followed from it."""
    return min(ends, key=lambda end: (_significance(end.code), end.local_rank))


def _significance(code: int) -> int:
    order = (ExitCode.FENCED, ExitCode.STORE_UNAVAILABLE, ExitCode.LOST_PEER, ExitCode.STOPPED, ExitCode.DONE)
    if classify_exit_code(code) == ExitClass.USER_ERROR:
        return 0
    if code == ExitCode.STEP_TOO_LARGE:
        return 1
    return 3 + order.index(ExitCode(code)) if code in order else 2


def _wait_for_all(
    children: Sequence[subprocess.Popen[bytes]], peer_grace_s: float, stop_asked: Callable[[], bool]
) -> list[Ended]:
    ended: queue.Queue[Ended] = queue.Queue()
    for rank, child in enumerate(children):
        threading.Thread(target=lambda r=rank, c=child: ended.put(Ended(r, _code(c.wait()))), daemon=True).start()
    ends: list[Ended] = []
    deadline: float | None = None
    while len(ends) < len(children):
        try:
            end = ended.get(timeout=None if deadline is None else max(deadline - time.monotonic(), 0.0))
        except queue.Empty:
            _signal_all(children, signal.SIGKILL)
            deadline = None
            continue
        listened = end.code == ExitCode.STOPPED
        if end.code in (128 + signal.SIGTERM, 128 + signal.SIGINT) and stop_asked():
            end = Ended(end.local_rank, ExitCode.STOPPED)  # it did not listen yet, so it has nothing to commit
        by_our_hand = deadline is not None or any(earlier.code for earlier in ends)
        if by_our_hand and end.code in (128 + signal.SIGTERM, 128 + signal.SIGKILL):
            end = Ended(end.local_rank, ExitCode.LOST_PEER)
        ends.append(end)
        if listened:
            continue  # the others commit too, for as long as whoever asked for the stop lets them
        if end.code and deadline is None and len(ends) < len(children):
            _signal_all(children, signal.SIGTERM)
            deadline = time.monotonic() + peer_grace_s
    return ends


def _code(returncode: int) -> int:
    return 128 - returncode if returncode < 0 else returncode


def _signal_all(children: Sequence[subprocess.Popen[bytes]], number: int) -> None:
    for child in children:
        if child.poll() is None:
            child.send_signal(number)


class _signals_passed_to:
    """While open, SIGTERM and SIGINT of this process go to the workers, which then commit and stop."""

    def __init__(self, children: Sequence[subprocess.Popen[bytes]]) -> None:
        self._children = children
        self._before: dict[int, Callable[..., object] | int | None] = {}
        self.stop_asked = False

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, lambda got, frame: self._pass(got))
        return self

    def _pass(self, number: int) -> None:
        self.stop_asked = True
        _signal_all(self._children, number)

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
