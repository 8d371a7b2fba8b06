"""How long the bucket of a run may rest between two readings: the longer, the longer nothing has changed in it.

Kept by `bucket_view` for each resource. Whoever reports every few seconds is read as often as ever; what is shown of
one that has been silent for an hour is two minutes old at most. Times are monotonic seconds.
"""

from dataclasses import dataclass

SHARE = 0.25  # of the time since the last change, after which it is read again
LONGEST_S = 120.0


@dataclass
class Stillness:
    """Since when readings have found nothing new."""

    rests_s: float = 0.0  # after the last reading
    _since: float | None = None

    def note(self, now: float, *, changed: bool) -> None:
        """Takes note of a reading, and whether it found another state than the one before."""
        if changed or self._since is None:
            self._since = now
        self.rests_s = min(LONGEST_S, SHARE * (now - self._since))


@dataclass(frozen=True)
class Reading:
    """When a bucket was read last, and may be read next; in seconds."""

    age_s: float
    rests_s: float
