"""Where rank 0 reports training; one call writes to every enabled output.

Called by `engine.hooks` while other ranks may wait, so a slow store is left to a thread. `tensorboard.EventFile` and
`wandb.WandbRun` are the places.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch


class Sink(Protocol):
    """A place for scalars and pictures; none of its methods may stop training."""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Adds one value a tag."""

    def picture(self, tag: str, picture_HWC: npt.NDArray[np.uint8], step: int) -> None:
        """Adds an RGB picture."""

    def clip(self, tag: str, clip_THWC: npt.NDArray[np.uint8], step: int) -> None:
        """Adds RGB pictures that follow each other."""

    def histogram(self, tag: str, values: torch.Tensor, step: int) -> None:
        """Adds how the numbers of a tensor are spread."""

    def upload(self) -> None:
        """Copies what was written so far to the store."""

    def close(self) -> None:
        """Writes what is left, for the last time."""


@dataclass
class Sinks:
    """Several places as one; a thread uploads."""

    each: tuple[Sink, ...]
    _uploading: threading.Thread | None = None

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Adds one value a tag."""
        for sink in self.each:
            sink.scalars(values, step)

    def picture(self, tag: str, picture_HWC: npt.NDArray[np.uint8], step: int) -> None:
        """Adds an RGB picture."""
        for sink in self.each:
            sink.picture(tag, picture_HWC, step)

    def clip(self, tag: str, clip_THWC: npt.NDArray[np.uint8], step: int) -> None:
        """Adds RGB pictures that follow each other."""
        for sink in self.each:
            sink.clip(tag, clip_THWC, step)

    def histogram(self, tag: str, values: torch.Tensor, step: int) -> None:
        """Adds how the numbers of a tensor are spread."""
        for sink in self.each:
            sink.histogram(tag, values, step)

    def upload(self) -> None:
        """Begins to copy what was written so far to the store, unless a copy is under way: the next has it all."""
        if self._uploading is None or not self._uploading.is_alive():
            self._uploading = threading.Thread(target=self._upload, name="upload", daemon=True)
            self._uploading.start()

    def _upload(self) -> None:
        for sink in self.each:
            sink.upload()

    def close(self) -> None:
        """Writes what is left, for the last time and to the end, after any copy that is under way."""
        if self._uploading is not None:
            self._uploading.join()
        for sink in self.each:
            sink.close()
