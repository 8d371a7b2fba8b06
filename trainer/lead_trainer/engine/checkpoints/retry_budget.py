"""How long the engine retries a store that does not answer.

An outage of the store is not a failure of the run: a commit or a resume waits, tries again, and gives up only after a
total deadline. Every action passed in must be repeatable. What a person must repair (denied, skewed clocks) and what no
waiting changes (not found, corrupt) goes up at once; for a rotated key the store's client itself has waited by then.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import structlog

from lead_protocol.store.object_store import StoreError, StoreFull, StoreUnavailable

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")
STORE_OUTAGE_S = 1800.0
STOP_MARGIN = 0.8  # of the grace period may be spent waiting for the store
_LONGEST_PAUSE_S = 15.0

log = structlog.get_logger(__name__)


@dataclass
class RetryBudget:
    """A deadline shared by the storage calls of one phase; `begin` restarts it."""

    total_s: float = STORE_OUTAGE_S
    on_wait: Callable[[str], None] = lambda message: None
    pause: Callable[[float], None] = time.sleep
    is_stopping: Callable[[], bool] = lambda: False  # somebody wants the process to end
    stop_s: float = STORE_OUTAGE_S  # that it may still wait from then on
    _deadline: float = 0.0
    _stop_by: float | None = None

    def begin(self, total_s: float | None = None) -> None:
        """Starts the deadline of a new phase, `total_s` or the usual one from now."""
        self._deadline = time.monotonic() + (self.total_s if total_s is None else total_s)

    def hurry(self) -> None:
        """Lets everything from now on wait `stop_s` at most, because the process is to end."""
        if self._stop_by is None:
            self._stop_by = time.monotonic() + self.stop_s

    def call(self, action: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """Returns the action's result; tries again while the store is unavailable or full and there is time."""
        pause_s = 0.5
        while True:
            try:
                return action(*args, **kwargs)
            except (StoreUnavailable, StoreFull) as error:
                if time.monotonic() + pause_s > self._last_moment():
                    raise
                self._log(error, pause_s)
            self.pause(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _last_moment(self) -> float:
        if self.is_stopping():
            self.hurry()
        return self._deadline if self._stop_by is None else min(self._deadline, self._stop_by)

    def _log(self, error: StoreError, pause_s: float) -> None:
        self.on_wait(f"waiting for the store: {error}")
        log.warning("waiting for the store", error=str(error), next_try_s=pause_s)
