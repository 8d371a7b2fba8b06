"""Keys that wait for a pass: each at most once, never with two workers at a time, failures with a growing pause.

Namespaces take turns, so that a thousand keys of one do not keep one key of another waiting; and however many workers
the passes of one namespace hold, a namespace that has none in work gets one. Within a namespace there are two lanes:
what was asked for now comes before what was asked for later and is due, but only so many times. Where a hundred gangs
fail at once, pods are made for all of them before any status reports that the first run again.

Filled by informers, kopf handlers and the reconcile pass itself; emptied by the workers of `controllers.manager`. It
holds no object: a worker reads the newest state when its turn comes, so a hundred events on one key cost one pass.
"""

import asyncio
import heapq
import itertools
import math
import random
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from lead_operator import metrics
from lead_operator.fair_turns import Slots, reserve_of

Key = TypeVar("Key")

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0
NOW: Final = 0
DUE: Final = 1
ANY_NUMBER: Final = 1_000_000
OVERTAKES = 1000  # keys that may go before one that is due


class WorkQueue(Generic[Key]):
    """A deduplicating queue for one event loop; not for threads."""

    def __init__(self, namespace_of: Callable[[Key], str] = lambda key: "", workers: int = ANY_NUMBER) -> None:
        """`workers`: how many keys are in work at a time; a few more where a namespace has none (see `tasks`)."""
        self.tasks = workers + reserve_of(workers)  # how many may wait in `get`, each for one key at a time
        self._namespace_of = namespace_of
        self._slots = Slots(workers)
        self._waiting: dict[str, list[tuple[int, int, Key]]] = {}  # turn, lane, key; namespaces in the order of turns
        self._free: list[asyncio.Future[None]] = []  # one of each worker that waits
        self._turns = itertools.count()
        self._lanes: dict[Key, int] = {}  # of keys that wait for a worker, or for the one that has them to finish
        self._since: dict[Key, float] = {}  # when each of them began to wait, the longest wait first
        self._in_work: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._lanes) - sum(key in self._lanes for key in self._in_work)

    def add(self, key: Key) -> None:
        """Requests one pass for `key` as soon as a worker is free."""
        self._add(key, NOW)

    def add_after(self, key: Key, delay_s: float) -> None:
        """Requests a pass for `key` after a while; of several requests the earliest counts."""
        loop = asyncio.get_running_loop()
        due = loop.time() + delay_s
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(due, self._due, key)

    def oldest_s(self) -> float:
        """Returns how long the key has waited that has waited longest; 0 where none waits."""
        return next((time.monotonic() - since for since in self._since.values()), 0.0)

    def due_in_s(self, key: Key) -> float:
        """Returns after how long a wish for later is due; infinite where there is none."""
        timer = self._timers.get(key)
        return math.inf if timer is None else timer.when() - asyncio.get_running_loop().time()

    def add_after_failure(self, key: Key) -> float:
        """Requests another pass after a backoff that doubles with each failure; returns the backoff in seconds."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        pause_s: float = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures - 1, 20)) * random.uniform(0.8, 1.2)
        self.add_after(key, pause_s)
        return pause_s

    def forget_failures(self, key: Key) -> None:
        """Lets the next failure of `key` start with the shortest pause again."""
        self._failures.pop(key, None)

    def drop_timer(self, key: Key) -> None:
        """Forgets a wish for later, because the pass that now runs will state its own."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    async def get(self) -> Key:
        """Waits for a key and hands it to one worker, who must call `done`."""
        while (key := self._take()) is None:
            free: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._free.append(free)
            try:
                await free
            except asyncio.CancelledError:
                if free in self._free:
                    self._free.remove(free)
                else:
                    self._wake()  # the key that this one was woken for waits still
                raise
        metrics.QUEUE_DEPTH.set(len(self))
        return key

    def done(self, key: Key) -> None:
        """Takes a key back from its worker; it is queued again if it was asked for meanwhile."""
        self._in_work.discard(key)
        self._slots.give(self._namespace_of(key))
        if key in self._lanes:
            self._enqueue(key)
        self._wake()

    def _take(self) -> Key | None:
        """Returns the next key of the first namespace that may have one in work; that namespace then comes last."""
        for namespace in list(self._waiting):
            if not self._slots.may_take(namespace):
                continue
            queue = self._waiting.pop(namespace)
            key = self._next_of(queue)
            if queue:
                self._waiting[namespace] = queue
            if key is not None:
                self._slots.take(namespace)
                return key
        return None

    def _next_of(self, queue: list[tuple[int, int, Key]]) -> Key | None:
        while queue:
            _, lane, key = heapq.heappop(queue)
            if self._lanes.get(key) == lane and key not in self._in_work:  # else `done` queues it, or it came up faster
                del self._lanes[key], self._since[key]
                self._in_work.add(key)
                return key
        return None

    def _due(self, key: Key) -> None:
        self._timers.pop(key, None)
        self._add(key, DUE)

    def _add(self, key: Key, lane: int) -> None:
        if self._lanes.get(key, DUE + 1) <= lane:
            return
        self._lanes[key] = lane
        self._since.setdefault(key, time.monotonic())
        self._enqueue(key)

    def _enqueue(self, key: Key) -> None:
        lane, queue = self._lanes[key], self._waiting.setdefault(self._namespace_of(key), [])
        heapq.heappush(queue, (next(self._turns) + lane * OVERTAKES, lane, key))
        metrics.QUEUE_DEPTH.set(len(self))
        self._wake()

    def _wake(self) -> None:
        while self._free:
            free = self._free.pop(0)
            if not free.done():
                free.set_result(None)
                return
