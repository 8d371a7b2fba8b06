"""Pictures of all cameras of a sample, which are decoded, coloured and mirrored where a batch's memory is.

Fresh memory for nine million pixels costs more than decoding them; here each thread decodes into memory of its own,
which it uses again, and channels are separated straight into the batch.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.data.jpeg_picture import EncodedPixels, JpegPicture, stored_picture
from lead_trainer.errors import BadData
from lead_trainer.recipes.nuplan.augment import Draw, coloured

UNCHANGED = Draw()
Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class RigPictures(EncodedPixels):
    """Pictures (C, 3, height, width), RGB."""

    pictures: tuple[JpegPicture | Pixels, ...]
    shape: tuple[int, int, int, int]
    chosen: Draw = UNCHANGED
    flipped: bool = False

    @classmethod
    def of(
        cls, channels: Sequence[str], jpegs: Sequence[bytes | memoryview], size: tuple[int, int], chosen: Draw
    ) -> Self:
        """Takes a JPEG for each channel; raises BadData for one that is not of `size` (height, width)."""
        pictures = []
        for channel, data in zip(channels, jpegs, strict=True):
            picture = stored_picture(memoryview(data))
            if picture.shape != (*size, 3):
                raise BadData(f"a picture of {channel} has shape {picture.shape}, expected {size[0]} x {size[1]}")
            pictures.append(picture)
        return cls(tuple(pictures), (len(pictures), 3, *size), chosen)

    def mirrored(self) -> Self:
        """Returns the pictures with left and right changed."""
        return replace(self, flipped=not self.flipped)

    def write_into(self, pixels: Pixels) -> None:
        """Decodes into a contiguous array of this shape; raises BadData for a JPEG that is broken."""
        whole, other = _own_memory((self.shape[0], *self.shape[2:], 3))
        for picture, memory in zip(self.pictures, whole, strict=True):
            if isinstance(picture, JpegPicture):
                picture.write_into(memory)
            else:
                memory[...] = picture
        for number, picture in enumerate(coloured(list(whole), self.chosen, list(other))):
            cv2.split(cv2.flip(picture, 1) if self.flipped else picture, list(pixels[number]))


_OF_THREAD = threading.local()


def _own_memory(shape: tuple[int, int, int, int]) -> Pixels:
    """Returns memory that this thread has for pictures (C, height, width, 3), twice; the next call writes it again."""
    memory: Pixels | None = getattr(_OF_THREAD, "memory", None)
    if memory is None or memory.shape[1:] != shape:
        memory = _OF_THREAD.memory = np.empty((2, *shape), np.uint8)
    return memory
