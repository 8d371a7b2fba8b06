"""The event file of one attempt, under LEAD's tags, on rank 0.

It is written to local disk and copied to the store whole after each checkpoint and at the end; one that has grown large
is followed by another, so that no copy costs more than a bounded file. A resumed attempt writes a file of its own that
hides the steps it repeats. A disk that fails is one warning, and training goes on without.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import structlog
import torch
from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter

from lead_protocol.store.object_store import ObjectStore, StoreError
from lead_trainer.report.gif import as_gif

LARGE_BYTES = 64 * 1024 * 1024  # a file of so much is not written any further once it is copied

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
        self._copied: dict[str, int] = {}  # bytes of each file that are in the store
        self._is_large = False
        self._writer: SummaryWriter | None = None
        if not on:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # This attempt may have written here before: one that ran out of memory starts again in its own process.
            # Another process's file of the same attempt is another run's, whose steps shall stay in sight.
            own = f"events.out.tfevents.*.{os.getpid()}.*{self._suffix}"
            follows = first_step or attempt > 1 or any(folder.glob(own))
            self._writer = self._opened(first_step + 1 if follows else None)
        except OSError as error:
            self._give_up(error)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Adds one value a tag."""

        def add(writer: SummaryWriter) -> None:
            for tag, value in values.items():
                writer.add_scalar(tag, value, step)

        self._write(add)

    def picture(self, tag: str, picture_HWC: npt.NDArray[np.uint8], step: int) -> None:
        """Adds an RGB picture."""
        self._write(lambda writer: writer.add_image(tag, picture_HWC, step, dataformats="HWC"))

    def clip(self, tag: str, clip_THWC: npt.NDArray[np.uint8], step: int) -> None:
        """Adds RGB pictures that follow each other, as a GIF: what a browser plays in the place of a picture."""
        height, width, channels = clip_THWC.shape[1:]
        value = Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=as_gif(clip_THWC))
        summary = Summary(value=[Summary.Value(tag=tag, image=value)])
        self._write(lambda writer: writer._get_file_writer().add_summary(summary, step))

    def histogram(self, tag: str, values: torch.Tensor, step: int) -> None:
        """Adds how the finite numbers of a tensor are spread."""
        if self._writer is None:
            return
        finite = values.detach().float().cpu().flatten()
        finite = finite[torch.isfinite(finite)]
        if len(finite):
            self._write(lambda writer: writer.add_histogram(tag, finite, step))

    def upload(self) -> None:
        """Copies what has grown to the store; one that does not answer now gets it with the next checkpoint."""
        writer = self._writer
        try:
            if writer is not None:
                writer.flush()
            if self._store is None:
                return
            files = sorted(self._folder.glob(f"events.out.tfevents.*{self._suffix}"))
            for path in files:
                self._copy(path, self._store)
            self._is_large = bool(files) and files[-1].stat().st_size >= LARGE_BYTES
        except (OSError, StoreError) as error:
            log.warning("event file is not uploaded for now", error=str(error))

    def close(self) -> None:
        """Writes what is left and uploads it."""
        self._write(lambda writer: writer.close())
        self._writer = None
        self.upload()

    def _opened(self, purge_step: int | None) -> SummaryWriter:
        return SummaryWriter(str(self._folder), purge_step=purge_step, filename_suffix=self._suffix)

    def _write(self, add: Callable[[SummaryWriter], None]) -> None:
        """Lets the writer do something, in a new file where the last one is large."""
        if self._writer is None:
            return
        try:
            if self._is_large:  # the writer is replaced here alone: `upload` is called in a thread
                self._writer.close()
                self._writer, self._is_large = self._opened(None), False
            add(self._writer)
        except OSError as error:  # of the disk, perhaps of an earlier call: the writer has a thread
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._writer = None
        log.warning("the event file is off for this attempt; training goes on", folder=str(self._folder),
                    error=str(error))  # fmt: skip

    def _copy(self, path: Path, store: ObjectStore) -> None:
        if self._copied.get(path.name) == path.stat().st_size:
            return
        data = path.read_bytes()
        store.put(self._prefix + path.name, data)
        self._copied[path.name] = len(data)
