"""A pause after a store's error, of each namespace by itself: what a team put there may be what is slow.

Used by the clients of a store that are asked at every pass.
"""

import time
from collections.abc import Callable

from lead_protocol.store.object_store import StoreError


class StoreBackoff:
    """The last errors of all stores; may be used from several threads."""

    def __init__(self, pause_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._pause_s = pause_s
        self._now = now
        self._until: dict[tuple[str, str], tuple[float, StoreError]] = {}  # by profile and namespace

    def error(self, profile_name: str, namespace: str) -> StoreError | None:
        """Returns the error for which a store is not asked yet; None where it may be asked."""
        until, error = self._until.get((profile_name, namespace), (0.0, None))
        return error if self._now() < until else None

    def note(self, profile_name: str, namespace: str, error: StoreError) -> None:
        """Takes note of an error: the pause begins."""
        kept = error.with_traceback(None)  # its frames hold what the store had answered
        self._until[profile_name, namespace] = (self._now() + self._pause_s, kept)
