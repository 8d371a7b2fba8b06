"""Numbers that the threads of a process and its forked children add to: what worker processes read counts as well.

They lie in shared memory. The lock between processes is a POSIX lock, which the kernel frees when its holder dies, so a
killed worker never blocks the others.
"""

import fcntl
import mmap
import os
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager


class SharedCounters:
    """Named numbers (float64), 0 at first."""

    def __init__(self, names: Sequence[str]) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._layout = struct.Struct(f"<{len(names)}d")
        self._file = os.fdopen(os.memfd_create("lead-counters"), "r+b", buffering=0)
        self._file.truncate(self._layout.size)
        self._memory = mmap.mmap(self._file.fileno(), self._layout.size)
        self._locks: dict[int, threading.Lock] = {}  # by process: one that is held while forking stays the parent's

    def add(self, amounts: Mapping[str, float]) -> None:
        """Adds to some numbers at once."""
        with self._locked():
            values = list(self._layout.unpack_from(self._memory))
            for name, amount in amounts.items():
                values[self._places[name]] += amount
            self._layout.pack_into(self._memory, 0, *values)

    def set(self, name: str, value: float) -> None:
        """Sets one number."""
        with self._locked():
            values = list(self._layout.unpack_from(self._memory))
            values[self._places[name]] = value
            self._layout.pack_into(self._memory, 0, *values)

    def read(self) -> dict[str, float]:
        """Returns all numbers now."""
        return dict(zip(self._places, self._layout.unpack_from(self._memory), strict=True))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._locks.setdefault(os.getpid(), threading.Lock()):
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)
