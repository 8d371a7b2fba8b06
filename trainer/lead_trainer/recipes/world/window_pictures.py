"""Pictures of a window, which are decoded and changed where a batch's memory is.

Fresh memory for a window's pixels costs more than a change of them: each thread decodes into memory of its own, which
it uses again, and channels are separated straight into the batch.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.data.jpeg_picture import EncodedPixels, JpegPicture, stored_picture
from lead_trainer.errors import BadData
from lead_trainer.recipes.world.augment import Draw, FrameMemory, changed

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class WindowPictures(EncodedPixels):
    """Pictures (T, 3, height, width), RGB."""

    pictures: tuple[JpegPicture | Pixels, ...]
    shape: tuple[int, int, int, int]
    chosen: Draw | None = None  # what is done to all of them

    @classmethod
    def of(cls, jpegs: Sequence[memoryview], size: tuple[int, int], chosen: Draw | None) -> Self:
        """Takes the frames in order; raises BadData for one that is not of `size` (height, width)."""
        pictures = tuple(stored_picture(data) for data in jpegs)
        for picture in pictures:
            if picture.shape != (*size, 3):
                raise BadData(f"a picture of the cache has shape {picture.shape}, expected {size[0]} x {size[1]}")
        return cls(pictures, (len(pictures), 3, *size), chosen)

    def write_into(self, pixels: Pixels) -> None:
        """Decodes into a contiguous array of this shape; raises BadData for a JPEG that is broken."""
        memory = _own_memory((self.shape[0], *self.shape[2:], 3))
        frames = self._decoded(memory.read)
        for frame, place in zip(changed(frames, self.chosen, memory) if self.chosen else frames, pixels, strict=True):
            cv2.split(frame, list(place))

    def _decoded(self, place: Pixels) -> Iterator[Pixels]:
        """Yields the pictures one after the other in the same memory."""
        for picture in self.pictures:
            if isinstance(picture, JpegPicture):
                picture.write_into(place)
                yield place
            else:
                yield picture


_OF_THREAD = threading.local()


def _own_memory(shape: tuple[int, int, int, int]) -> FrameMemory:
    """Returns memory that this thread has for frames (T, height, width, 3); the next call writes it again."""
    memory: FrameMemory | None = getattr(_OF_THREAD, "memory", None)
    if memory is None or memory.shape != shape:
        memory = _OF_THREAD.memory = FrameMemory(shape)
    return memory
