"""What the progress record counts for monitoring, of rank 0: steps by duration, checkpoints, the load of its GPU.

The operator exports them as metrics, so no pod opens a port. A step costs one bisection; the GPU is asked every few
seconds.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from lead_protocol.progress_record import STEP_BOUNDS_S
from lead_trainer.engine.reporting.gpu_load import busy_share

GPU_INTERVAL_S = 5.0


class AttemptCounters:
    """Counters of one attempt, by the names of the progress record."""

    def __init__(self, device: torch.device, now: Callable[[], float] = time.monotonic) -> None:
        self._device, self._now = device, now
        self._counts, self._steps_s = [0] * (len(STEP_BOUNDS_S) + 1), 0.0
        self._checkpoints, self._checkpoints_s = 0, 0.0
        self._gpu, self._gpu_read_at = dict[str, Any](), -GPU_INTERVAL_S

    def step(self, seconds: float) -> None:
        """Counts a step that took so long, waiting for data included."""
        self._counts[bisect_left(STEP_BOUNDS_S, seconds)] += 1
        self._steps_s += seconds

    @contextmanager
    def waiting_for_checkpoint(self) -> Iterator[None]:
        """Counts the time that training waits for a checkpoint in the body, unless that fails."""
        begin = self._now()
        yield
        self._checkpoints_s += self._now() - begin

    def committed(self) -> None:
        """Counts a checkpoint that is committed."""
        self._checkpoints += 1

    def reported(self) -> dict[str, Any]:
        """Returns the counters now."""
        return {
            "step_counts": list(self._counts),
            "steps_s": round(self._steps_s, 3),
            "checkpoints": self._checkpoints,
            "checkpoints_s": round(self._checkpoints_s, 3),
            **self._gpu_load(),
        }

    def _gpu_load(self) -> dict[str, Any]:
        if self._device.type == "cuda" and self._now() - self._gpu_read_at >= GPU_INTERVAL_S:
            self._gpu_read_at = self._now()
            free, total = torch.cuda.mem_get_info(self._device)
            self._gpu = {"gpu_memory_bytes": total - free, "gpu_memory_total_bytes": total}
            if (busy := busy_share(self._device)) is not None:
                self._gpu["gpu_busy"] = busy
        return self._gpu
