"""Lets namespaces take turns: whatever one of them asks for, another waits for one of its pieces of work, not for all.

Used by `work_queue` (passes), `call_turns` (calls to the API server), `store_threads` and `event_recorder`. Two
rules make it fair: what waits is taken round-robin over namespaces, and a namespace that has nothing under way may go
beyond the limit, up to a reserve, so that it never waits until another one's slow work ends.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

Item = TypeVar("Item")

RESERVE_SHARE = 0.5  # of the limit; so many namespaces may begin while others hold all of it


def reserve_of(limit: int) -> int:
    """Returns how much may be under way beyond a limit, for namespaces that have nothing under way."""
    return max(1, int(limit * RESERVE_SHARE))


class Slots:
    """Counts what is in progress, and decides whether a namespace may start more."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: Counter[str] = Counter()
        self._used = 0

    def may_take(self, namespace: str) -> bool:
        """Returns whether there is a slot for this namespace."""
        first = self._held[namespace] == 0 and self._used < self._limit + reserve_of(self._limit)
        return first or self._used < self._limit

    def take(self, namespace: str) -> None:
        """Takes a slot."""
        self._held[namespace] += 1
        self._used += 1

    def give(self, namespace: str) -> None:
        """Gives it back."""
        self._held[namespace] -= 1
        self._used -= 1
        if not self._held[namespace]:
            del self._held[namespace]  # namespaces come and go


class RoundRobin(Generic[Item]):
    """Items in a queue of each namespace; the namespaces in the order in which it is their turn."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[Item]] = {}  # in the order of turns

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def put(self, namespace: str, item: Item) -> None:
        """Adds an item behind the others of its namespace."""
        self._queues.setdefault(namespace, deque()).append(item)

    def waiting(self, namespace: str) -> int:
        """Returns how many items of a namespace wait."""
        return len(self._queues.get(namespace, ()))

    def namespaces(self) -> Iterator[str]:
        """Yields the namespaces with items, the one whose turn it is first."""
        yield from list(self._queues)

    def take(self, namespace: str) -> Item:
        """Returns the first item of a namespace, whose turn then comes last."""
        queue = self._queues.pop(namespace)
        item = queue.popleft()
        if queue:
            self._queues[namespace] = queue
        return item


class FairTurns:
    """So many pieces of work at a time, and fair between namespaces; for one event loop."""

    def __init__(self, limit: int) -> None:
        self._slots = Slots(limit)
        self._waiting: RoundRobin[asyncio.Future[None]] = RoundRobin()

    @asynccontextmanager
    async def turn(self, namespace: str) -> AsyncIterator[None]:
        """Waits until work of this namespace may begin; the turn ends with the block."""
        await self.take(namespace)
        try:
            yield
        finally:
            self.give(namespace)

    async def take(self, namespace: str) -> None:
        """Waits until work of this namespace may begin; whoever has the turn gives it back."""
        if not self._waiting.waiting(namespace) and self._slots.may_take(namespace):
            self._slots.take(namespace)
        else:
            await self._wait(namespace)

    def give(self, namespace: str) -> None:
        """Ends a turn of this namespace."""
        self._slots.give(namespace)
        self._let_go_on()

    async def _wait(self, namespace: str) -> None:
        mine = asyncio.get_running_loop().create_future()
        self._waiting.put(namespace, mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():  # it was this one's turn already
                self._slots.give(namespace)
            mine.cancel()
            self._let_go_on()
            raise

    def _let_go_on(self) -> None:
        again = True
        while again:
            again = False
            for namespace in self._waiting.namespaces():
                if not self._slots.may_take(namespace):
                    continue
                waits = self._waiting.take(namespace)
                again = True
                if not waits.done():  # else its caller has given up
                    self._slots.take(namespace)
                    waits.set_result(None)
                break
