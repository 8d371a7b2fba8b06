"""Checks that this process receives events and makes passes; one with stalled watches must exit.

Read by the liveness page and run by `controllers.manager`. A server that is away is no reason to end: a new process
would not see more. A watch that is silent without a cause, or one that is rejected, is.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable

from lead_operator import metrics
from lead_operator.kube.informer import Informer

SILENT_S = 150.0
STALLED_S = 300.0  # longer than any pass may take, with all its tries and timeouts
CHECK_S = 5.0


class WatchStalled(Exception):
    """A watch has been silent, or the workers have stood still, for too long."""


class Watchdog:
    """Checks the informers that must not be silent and the running time of the oldest pass.

    One that was excused counts from when it no longer is.
    """

    def __init__(
        self,
        informers: Callable[[], Iterable[Informer]],
        oldest_pass_s: Callable[[], float],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self._informers = informers
        self._oldest_pass_s = oldest_pass_s
        self._awaited_since: dict[str, float] = {}

    def verdict(self) -> str:
        """Returns what is wrong in one sentence, or an empty string."""
        now, informers = self._now(), list(self._informers())
        new_since = now if self._awaited_since else -math.inf
        self._awaited_since = {each.name: self._awaited_since.get(each.name, new_since) for each in informers}
        for informer in informers:
            metrics.WATCH_AGE.labels(informer.name).set(now - informer.last_sign_of_life)
            silent_s = now - max(informer.last_sign_of_life, self._awaited_since[informer.name])
            if silent_s > SILENT_S and now - informer.last_unreachable > SILENT_S:
                return f"watch of {informer.name} has been silent for {silent_s:.0f} s"
        stalled_s = self._oldest_pass_s()
        if stalled_s > STALLED_S:
            return f"one pass has been going on for {stalled_s:.0f} s"
        return ""

    async def run(self) -> None:
        """Raises WatchStalled as soon as the verdict is bad."""
        while not (verdict := self.verdict()):
            await asyncio.sleep(CHECK_S)
        raise WatchStalled(verdict)
