"""Sends a read a second time when the first is slower than nearly all before it, and takes the faster answer.

One slow answer of the store would delay a whole batch. Bounded: at most one second request a read, at most SHARE of
all reads, and none for a read larger than a record: what a node fetches ahead, shard by shard, comes once. Called by
`s3.py` for `get_range`, which changes nothing on the server.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Protocol, TypeVar, runtime_checkable

_Result = TypeVar("_Result")

SHARE = 0.05  # of the reads may be sent twice
BURST = 4.0  # second requests at once, when there were none for long
LEAST_READS = 20  # of one size before its usual time is known
QUANTILE = 0.95
MARGIN = 2.0  # times the quantile
SHORTEST_S = 0.02
MOST_BYTES = 4 * 1024 * 1024  # of a read that may be sent twice; a record has about one MiB
_REMEMBERED = 200
_THREADS = 64


@runtime_checkable
class AsksTwice(Protocol):
    """A store that sends late reads a second time."""

    @property
    def second_bytes(self) -> int:
        """How many bytes this process has asked for a second time; a forked child counts its own."""


class Hedge:
    """Knows how long reads take, by size; safe between threads and in a forked child."""

    def __init__(self) -> None:
        self._times: dict[int, deque[float]] = {}  # by the size's power of two
        self._tokens = BURST
        self._lock = threading.Lock()
        self._pools: dict[int, ThreadPoolExecutor] = {}
        self.second_requests = 0
        self.second_bytes = 0  # that they asked for

    def call(self, read: Callable[[], _Result], size: int) -> _Result:
        """Returns the answer of `read`, which must be repeatable; raises its error when no try succeeded."""
        if size > MOST_BYTES:
            return read()
        begin, delay_s = time.monotonic(), self._delay_s(size)
        result = read() if delay_s is None else self._hedged(read, delay_s, size)
        with self._lock:
            self._times.setdefault(size.bit_length(), deque(maxlen=_REMEMBERED)).append(time.monotonic() - begin)
            self._tokens = min(BURST, self._tokens + SHARE)
        return result

    def _hedged(self, read: Callable[[], _Result], delay_s: float, size: int) -> _Result:
        pool = self._pool()
        first = pool.submit(read)
        if wait([first], delay_s).done or not self._take_token(size):
            return first.result()
        second = pool.submit(read)
        done, others = wait([first, second], return_when=FIRST_COMPLETED)
        winner = next((future for future in done if future.exception() is None), None)
        return (winner or _last(others, first)).result()

    def _delay_s(self, size: int) -> float | None:
        """Returns after which time a read of that size is late, None while that is not known."""
        with self._lock:
            times = sorted(self._times.get(size.bit_length(), ()))
        if len(times) < LEAST_READS:
            return None
        return max(SHORTEST_S, MARGIN * times[int(QUANTILE * (len(times) - 1))])

    def _take_token(self, size: int) -> bool:
        with self._lock:
            if self._tokens < 1:
                return False
            self._tokens -= 1
            self.second_requests += 1
            self.second_bytes += size
            return True

    def _pool(self) -> ThreadPoolExecutor:
        with self._lock:
            pool = self._pools.get(os.getpid())
            if pool is None:
                pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="read")
                self._pools = {os.getpid(): pool}
            return pool


def _last(others: "set[Future[_Result]]", first: "Future[_Result]") -> "Future[_Result]":
    """Returns the try that is still running after the other failed, or the first when both failed."""
    return next(iter(others), first)
