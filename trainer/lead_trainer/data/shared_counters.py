"""Numbers that the threads of a process and its forked children add to: what worker processes read counts as well.

They lie in shared memory, a row a process, so that adding takes no lock between processes; a number is the sum of its
rows. The row of a process that has ended goes on with the next new one. Rows are given away, and numbers set, under a
POSIX lock, which the kernel frees when its holder dies, so a killed worker never blocks the others.
"""

import fcntl
import mmap
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

PROCESSES = 256  # at once with a row of their own; more share one, under the lock
_SHARED_ROW = 0  # and the only one in which numbers are set
_BYTES = 8  # of a float64, which is written at once: no reader sees half of it


class SharedCounters:
    """Named numbers (float64), 0 at first."""

    def __init__(self, names: Sequence[str]) -> None:
        self._places = {name: place for place, name in enumerate(names, start=1)}
        self._width = 1 + len(names)  # a row: the process's id, then the numbers
        self._file = os.fdopen(os.memfd_create("lead-counters"), "r+b", buffering=0)  # empty: to be locked
        self._cells = memoryview(mmap.mmap(-1, (1 + PROCESSES) * self._width * _BYTES)).cast("d")
        self._rows: dict[int, int] = {}  # by process
        self._locks: dict[int, threading.Lock] = {}  # by process: one that is held while forking stays the parent's

    def add(self, amounts: Mapping[str, float]) -> None:
        """Adds to some numbers."""
        process = os.getpid()
        row = self._rows.get(process)
        if row is None:
            row = self._claimed(process)
        with self._locked() if row == _SHARED_ROW else self._lock(process):
            for name, amount in amounts.items():
                self._cells[row * self._width + self._places[name]] += amount

    def set(self, name: str, value: float) -> None:
        """Sets one number, which nobody adds to."""
        with self._locked():
            self._cells[_SHARED_ROW * self._width + self._places[name]] = value

    def read(self) -> dict[str, float]:
        """Returns all numbers now."""
        return {name: sum(self._cells[place :: self._width]) for name, place in self._places.items()}

    def _claimed(self, process: int) -> int:
        """Gives a process the first row that nobody alive has; returns the shared one where there is none."""
        with self._locked():
            if process not in self._rows:  # or another thread was first
                holders = [int(holder) for holder in self._cells[:: self._width]]
                free = (row for row, holder in enumerate(holders) if row != _SHARED_ROW and not _is_alive(holder))
                row = self._rows[process] = next(free, _SHARED_ROW)
                if row != _SHARED_ROW:
                    self._cells[row * self._width] = process
            return self._rows[process]

    def _lock(self, process: int) -> threading.Lock:
        return self._locks.setdefault(process, threading.Lock())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock(os.getpid()):
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)


def _is_alive(process: int) -> bool:
    """Returns whether a process exists; 0 is none."""
    if not process:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
