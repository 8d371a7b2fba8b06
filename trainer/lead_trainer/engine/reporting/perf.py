"""How fast an attempt trains: what a step waits, what it computes, what the device holds; kept beside the run."""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import torch

from lead_trainer.engine.checkpoints.revision import git_revision
from lead_trainer.engine.reporting.gpu_load import busy_share
from lead_trainer.engine.reporting.perf_record import PerfRecord
from lead_trainer.engine.reporting.watch import BATCHES_PER_S, GPU_SHARE, WAITING

Item = TypeVar("Item")
_SHORTEST_EPOCH_S = 10.0
_READ_EVERY_S = 2.0
_WARM_UP_STEPS = 3  # of an attempt: they compile, allocate and fill caches


class StepClock:
    """Parts the time of each step into waiting for batches and computing."""

    def __init__(self, device: torch.device, *, now: Callable[[], float] = time.perf_counter) -> None:
        self._device, self._now = device, now
        self._waited_s, self._since = 0.0, 0.0
        self._steps: list[tuple[float, float]] = []  # (waited, computed), seconds
        self._epoch_begin = 0
        self._busy = list[float]()  # shares, read while steps run: at an epoch's end the device has no work
        self._epoch_reads, self._read_at = 0, float("-inf")

    def waiting_for(self, batches: Iterator[Item]) -> Iterator[Item]:
        """Passes batches on and counts the time until each is there."""
        while True:
            begin = self._now()
            try:
                batch = next(batches)
            except StopIteration:
                return
            self._since = self._now()
            self._waited_s += self._since - begin
            yield batch

    def step_done(self) -> None:
        """Ends a step."""
        self._steps.append((self._waited_s, self._now() - self._since))
        self._waited_s = 0.0
        self._read_busy()

    @property
    def last_step_s(self) -> float:
        """Seconds of the last step."""
        return sum(self._steps[-1]) if self._steps else 0.0

    def epoch_done(self, batches_a_step: int) -> dict[str, float]:
        """Returns what watch rules know of the epoch's speed, by tag; without a rate for too short an epoch."""
        steps = self._steps[max(self._epoch_begin, _WARM_UP_STEPS) :]
        self._epoch_begin = len(self._steps)
        reads, self._epoch_reads = self._busy[self._epoch_reads :], len(self._busy)
        total = sum(waited + computed for waited, computed in steps)
        if total <= _SHORTEST_EPOCH_S:
            return {WAITING: 0.0}
        found = {GPU_SHARE: float(np.mean(reads))} if reads else {}
        waiting = sum(waited for waited, _ in steps) / total
        return {**found, WAITING: waiting, BATCHES_PER_S: len(steps) * batches_a_step / total}

    def _read_busy(self) -> None:
        """Reads how busy the GPU has been in the last moment, now and then."""
        if self._device.type != "cuda" or self._now() - self._read_at < _READ_EVERY_S:
            return
        self._read_at = self._now()
        if (busy := busy_share(self._device)) is not None:
            self._busy.append(busy)

    def record(self, *, batch_size: int, ranks: int, precision: str) -> PerfRecord | None:
        """Returns the record of everything so far, None while there is too little data."""
        steps = np.asarray(self._steps[_WARM_UP_STEPS:])
        if not len(steps):
            return None
        seconds = steps.sum(axis=1)
        cuda = self._device.type == "cuda"
        return PerfRecord(
            samples_per_s=batch_size / float(np.median(seconds)),
            step_s=float(np.median(seconds)),
            step_p90_s=float(np.quantile(seconds, 0.9)),
            waiting_share=float(steps[:, 0].sum() / seconds.sum()),
            steps=len(steps),
            batch_size=batch_size,
            ranks=ranks,
            device=torch.cuda.get_device_name(self._device) if cuda else "cpu",
            precision=precision,
            gpu_memory_bytes=torch.cuda.max_memory_allocated(self._device) if cuda else None,
            gpu_utilisation=100 * float(np.mean(self._busy)) if self._busy else None,
            torch_version=str(torch.__version__),
            git_revision=git_revision(),
        )
