"""The tasks that make the passes, as many at a time as configured, and what becomes of a failed pass.

Run by `controllers.manager`. A resource that breaks its pass is tried again with a growing pause, and stops no other.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from lead_operator import metrics
from lead_operator.controllers.apply import is_worth_retrying
from lead_operator.kube.api_errors import Conflict
from lead_operator.kube.kinds import ResourceKey
from lead_operator.kube.work_queue import WorkQueue

AT_ONCE_S = 0.05

log = structlog.get_logger(__name__)


class Workers:
    """Empties the queue; `reconcile` makes one pass, and returns in how many seconds to run the next one, if any."""

    def __init__(
        self,
        queue: WorkQueue[ResourceKey],
        reconcile: Callable[[ResourceKey], Awaitable[float | None]],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self._queue = queue
        self._reconcile = reconcile
        self._started_at: dict[ResourceKey, float] = {}  # passes that are going on

    @property
    def oldest_pass_s(self) -> float:
        """For how long the oldest pass has been going on."""
        now = self._now()
        return now - min(self._started_at.values(), default=now)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Runs all workers in the group."""
        for number in range(self._queue.tasks):
            tasks.create_task(self._work(), name=f"worker {number}")

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            self._started_at[key] = self._now()
            try:
                await self._one_pass(key)
            finally:
                del self._started_at[key]
                self._queue.done(key)

    async def _one_pass(self, key: ResourceKey) -> None:
        started, result = self._now(), "ok"
        self._queue.drop_timer(key)
        try:
            again_s = await self._reconcile(key)
            self._queue.forget_failures(key)
            if again_s is not None:
                self._queue.add_after(key, max(again_s, AT_ONCE_S))
        except Conflict as error:
            result = "conflict"
            log.debug("copy_too_old", resource=str(key), error=str(error))
            self._queue.add_after(key, AT_ONCE_S)
        except Exception as error:  # one resource that breaks a pass must not stop the passes of all others
            result = type(error).__name__
            pause_s = self._queue.add_after_failure(key)
            log_error = log.warning if is_worth_retrying(error) else log.exception
            log_error("pass_failed", resource=str(key), error=str(error), again_s=round(pause_s, 1))
        metrics.RECONCILE_SECONDS.labels(key.kind, result).observe(self._now() - started)
