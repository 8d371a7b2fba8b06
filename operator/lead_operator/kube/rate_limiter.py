"""Whose turn it is to call the API server: so many calls at a time and, where the installer wants it, in a second.

Used by `kube.client`. A watch takes no turn, because it lasts; a lease takes none, because one that waits behind
everything else is lost. Calls for one namespace do not wait until all those for another are done.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from lead_operator.fair_turns import FairTurns
from lead_operator.settings import Settings

BURST_S = 1.0  # after a rest, the calls of so long may go at once


class CallRate:
    """A token bucket, kept as the time at which it would be full again."""

    def __init__(self, per_second: float) -> None:
        """`per_second`: 0 is no limit."""
        self._each_s = 1 / per_second if per_second else 0.0
        self._taken_until = 0.0

    def take(self, now: float) -> float:
        """Takes one call out of the bucket; returns in how many seconds it may go."""
        self._taken_until = max(self._taken_until, now - BURST_S) + self._each_s
        return max(0.0, self._taken_until - now)


class RateLimiter:
    """Lets calls go in the order in which they came, a namespace at a time."""

    def __init__(
        self,
        in_flight: int = Settings.api_in_flight,
        per_second: float = Settings.api_calls_per_second,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self._turns = FairTurns(in_flight)
        self._rate = CallRate(per_second)

    @asynccontextmanager
    async def turn(self, namespace: str = "") -> AsyncIterator[None]:
        """Waits until a call may go; the turn ends with its answer. `namespace`: "" for what is of no namespace."""
        async with self._turns.turn(namespace):
            if (wait_s := self._rate.take(self._now())) > 0:
                await asyncio.sleep(wait_s)
            yield
