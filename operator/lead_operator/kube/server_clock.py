"""What time it is by the API server's clock, which no jump of this machine's clock can change.

Deadlines and times to live compare times that were written into the cluster, by whichever operator process ran then.
So all of them must come from one clock: the API server sends its own with every response (the header Date, RFC 9110
section 6.6.1, in whole seconds). Between answers the machine's monotonic clock goes on from there.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

TOLERANCE = timedelta(seconds=5)  # an answer may have waited on its way


class ServerClock:
    """Fed by `kube.client` with every answer, read by both controllers at the start of each pass."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._anchor: tuple[datetime, float] | None = None  # the server's time, and our monotonic time then

    def note(self, date: str | None) -> None:
        """Takes an answer's Date header; one that is absent or no date is passed over."""
        try:
            server_time = parsedate_to_datetime(date or "").astimezone(UTC)
        except ValueError:
            return
        if self._anchor is None or abs(server_time - self.now()) > TOLERANCE:
            self._anchor = (server_time, self._monotonic())

    def now(self) -> datetime:
        """Returns the server's time; before the first answer, the machine's."""
        if self._anchor is None:
            return datetime.now(UTC)
        server_time, at = self._anchor
        return server_time + timedelta(seconds=self._monotonic() - at)
