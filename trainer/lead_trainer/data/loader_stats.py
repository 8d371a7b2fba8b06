"""Where a loader's time goes, by stage: what `lead bench data` and the event files show.

Times of threads add up, so with n threads a stage may count n seconds a second.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lead_trainer.data.shared_counters import SharedCounters

STAGES = ("load", "copy", "outage", "wait", "step")


@dataclass(frozen=True)
class LoaderStats:
    """Seconds since the loader was made."""

    load_s: float = 0.0  # threads: fetch, read and check samples, and decode them into their rows
    copy_s: float = 0.0  # threads: from rows to a batch: what only `collate` can do
    outage_s: float = 0.0  # threads: waiting for a store that is away
    wait_s: float = 0.0  # the loop: waiting for a batch
    step_s: float = 0.0  # the loop: between a batch and the wish for the next
    batches: int = 0
    longest_wait_s: float = 0.0

    def by_stage(self) -> dict[str, float]:
        """Returns the seconds of each stage, to the millisecond."""
        return {stage: round(getattr(self, f"{stage}_s"), 3) for stage in STAGES}


def stage_scalars(before: LoaderStats, now: LoaderStats) -> dict[str, float]:
    """Returns the milliseconds a batch took in each stage between two reads, by the tags of the event files."""
    batches = now.batches - before.batches
    if batches <= 0:
        return {}
    return {
        f"data/{stage}_ms": 1000 * (getattr(now, f"{stage}_s") - getattr(before, f"{stage}_s")) / batches
        for stage in STAGES
    }


class LoaderClock:
    """LoaderStats that several threads add to, and worker processes where they lie in `shared` counters."""

    def __init__(self, shared: SharedCounters | None = None) -> None:
        self._shared = shared
        self._seconds = dict.fromkeys(STAGES, 0.0)
        self._batches, self._longest_wait_s = 0, 0.0
        self._lock = threading.Lock()
        self._handed_over = time.perf_counter()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Adds the body's time to `<name>_s`."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._add(name, time.perf_counter() - begin)

    def handed_over(self) -> None:
        """Notes that the loop has got a batch."""
        self._handed_over = time.perf_counter()
        self._batches += 1

    def asked(self) -> None:
        """Notes that the loop asks for the next batch."""
        self._add("step", time.perf_counter() - self._handed_over)

    def read(self) -> LoaderStats:
        """Returns the times now."""
        seconds = self._shared.read() if self._shared else self._seconds
        return LoaderStats(
            **{f"{stage}_s": seconds[stage] for stage in STAGES},
            batches=self._batches,
            longest_wait_s=self._longest_wait_s,
        )

    def _add(self, name: str, seconds: float) -> None:
        if self._shared:
            self._shared.add({name: seconds})
        with self._lock:
            self._seconds[name] += seconds
            if name == "wait":
                self._longest_wait_s = max(self._longest_wait_s, seconds)
