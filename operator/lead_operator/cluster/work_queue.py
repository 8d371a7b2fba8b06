"""Keys that wait to be looked at: each at most once, never with two workers at a time, failures with a growing pause.

Two lanes: what was asked for now comes before what was asked for later and is due, but only so many times. Where a
hundred gangs fail at once, pods are made for all of them before anybody tells that the first run again.

Filled by informers, kopf handlers and the reconcile pass itself; emptied by the workers of `cluster.operator`. It
holds no object: a worker reads the newest state when its turn comes, so a hundred events on one key cost one pass.
"""

import asyncio
import itertools
import random
from typing import Final, Generic, TypeVar

from lead_operator.cluster import metrics

Key = TypeVar("Key")

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0
NOW: Final = 0
DUE: Final = 1
OVERTAKES = 1000  # keys that may go before one that is due


class WorkQueue(Generic[Key]):
    """A deduplicating queue for one event loop; not for threads."""

    def __init__(self) -> None:
        self._waiting: asyncio.PriorityQueue[tuple[int, int, Key]] = asyncio.PriorityQueue()  # turn, lane, key
        self._turns = itertools.count()
        self._lanes: dict[Key, int] = {}  # of keys that wait for a worker, or for the one that has them to finish
        self._in_work: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._lanes) - sum(key in self._lanes for key in self._in_work)

    def add(self, key: Key) -> None:
        """Asks for one look at `key` as soon as a worker is free."""
        self._add(key, NOW)

    def add_after(self, key: Key, delay_s: float) -> None:
        """Asks for a look at `key` after a while; of several such wishes the earliest counts."""
        loop = asyncio.get_running_loop()
        due = loop.time() + delay_s
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(due, self._due, key)

    def add_after_failure(self, key: Key) -> float:
        """Asks for another look after a pause that doubles with each failure in a row; returns the pause in seconds."""
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
        while True:
            _, lane, key = await self._waiting.get()
            if self._lanes.get(key) == lane and key not in self._in_work:  # else `done` queues it, or it came up faster
                break
        del self._lanes[key]
        self._in_work.add(key)
        metrics.QUEUE_DEPTH.set(len(self))
        return key

    def done(self, key: Key) -> None:
        """Takes a key back from its worker; it is queued again if it was asked for meanwhile."""
        self._in_work.discard(key)
        if key in self._lanes:
            self._enqueue(key)

    def _due(self, key: Key) -> None:
        self._timers.pop(key, None)
        self._add(key, DUE)

    def _add(self, key: Key, lane: int) -> None:
        if self._lanes.get(key, DUE + 1) <= lane:
            return
        self._lanes[key] = lane
        self._enqueue(key)

    def _enqueue(self, key: Key) -> None:
        lane = self._lanes[key]
        self._waiting.put_nowait((next(self._turns) + lane * OVERTAKES, lane, key))
        metrics.QUEUE_DEPTH.set(len(self))
