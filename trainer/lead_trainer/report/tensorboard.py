"""The event file of one attempt, under LEAD's tags, on rank 0.

It is written to local disk and copied to the store whole after each checkpoint and at the end. A resumed attempt writes
a file of its own that hides the steps it repeats.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import structlog
import torch
from torch.utils.tensorboard import SummaryWriter

from lead_protocol.store.object_store import ObjectStore, StoreError

log = structlog.get_logger(__name__)


class EventFile:
    """Scalars and pictures of one attempt; a switched-off one swallows them."""

    def __init__(
        self, folder: Path, store: ObjectStore | None, prefix: str, *, attempt: int, first_step: int, on: bool
    ) -> None:
        """Opens the file; steps after `first_step` of earlier files are hidden by readers.

        Without a store it stays where it is: TensorBoard would show a copy below the same folder as a second run.
        """
        self._folder, self._store, self._prefix = folder, store, prefix
        self._suffix = f".attempt-{attempt:04d}"
        self._writer: SummaryWriter | None = None
        if on:
            folder.mkdir(parents=True, exist_ok=True)
            purge = first_step + 1 if first_step or attempt > 1 else None
            self._writer = SummaryWriter(str(folder), purge_step=purge, filename_suffix=self._suffix)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Adds one value a tag."""
        if self._writer is not None:
            for tag, value in values.items():
                self._writer.add_scalar(tag, value, step)

    def picture(self, tag: str, picture_HWC: npt.NDArray[np.uint8], step: int) -> None:
        """Adds an RGB picture."""
        if self._writer is not None:
            self._writer.add_image(tag, picture_HWC, step, dataformats="HWC")

    def histogram(self, tag: str, values: torch.Tensor, step: int) -> None:
        """Adds how the finite numbers of a tensor are spread."""
        if self._writer is not None:
            finite = values.detach().float().cpu().flatten()
            finite = finite[torch.isfinite(finite)]
            if len(finite):
                self._writer.add_histogram(tag, finite, step)

    def upload(self) -> None:
        """Copies the file to the store; one that does not answer now gets it with the next checkpoint."""
        if self._writer is None:
            return
        self._writer.flush()
        if self._store is None:
            return
        try:
            for path in sorted(self._folder.glob(f"events.out.tfevents.*{self._suffix}")):
                self._store.put(self._prefix + path.name, path.read_bytes())
        except (OSError, StoreError) as error:
            log.warning("event file is not uploaded for now", error=str(error))

    def close(self) -> None:
        """Writes what is left and uploads it."""
        if self._writer is not None:
            self._writer.close()
            self.upload()
            self._writer = None
