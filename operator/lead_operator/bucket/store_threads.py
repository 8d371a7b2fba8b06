"""Threads that ask the stores, with turns between namespaces: what one of them asks for slowly holds up no other.

Used by every client of a store (`bucket_view`, `cache_publisher`, `cache_data_gc`, `checkpoint_gc`,
`source_watch`), each with threads of its own. Each profile has its own as well, so that a slow store holds up nobody
who uses another.
"""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from lead_operator.fair_turns import FairTurns, reserve_of

Result = TypeVar("Result")


@dataclass(frozen=True)
class Pool:
    """The threads that ask one store."""

    turns: FairTurns
    threads: ThreadPoolExecutor


class StoreThreads:
    """A pool of threads for each profile; for one event loop."""

    def __init__(self, limit: int, name: str) -> None:
        """`limit`: pieces of work of one profile at a time, without the reserve of `fair_turns`."""
        self._limit = limit
        self._name = name
        self._pools: dict[str, Pool] = {}  # by profile

    def pool(self, profile_name: str) -> Pool:
        """Returns the pool of a profile."""
        if profile_name not in self._pools:
            threads = ThreadPoolExecutor(self._limit + reserve_of(self._limit), thread_name_prefix=self._name)
            self._pools[profile_name] = Pool(FairTurns(self._limit), threads)
        return self._pools[profile_name]

    async def run(
        self, profile_name: str, namespace: str, work: Callable[..., Result], *arguments: object
    ) -> Result:  # fmt: skip
        """Returns what `work` returns in a thread, when it is the namespace's turn; raises what it raises.

        The turn lasts as long as the work, also where nobody waits for it any more: its thread is not free before.
        """
        pool, loop = self.pool(profile_name), asyncio.get_running_loop()
        await pool.turns.take(namespace)

        def end_turn(_: "Future[Result]") -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended before the work
                loop.call_soon_threadsafe(pool.turns.give, namespace)

        try:
            future = pool.threads.submit(work, *arguments)
        except RuntimeError:  # closed
            pool.turns.give(namespace)
            raise
        future.add_done_callback(end_turn)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Lets running work end and starts no more."""
        for pool in self._pools.values():
            pool.threads.shutdown(wait=False, cancel_futures=True)
