"""Pictures of a window, which are decoded and changed frame by frame where a batch wants them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from lead_trainer.data.frame_memory import frame_memory
from lead_trainer.data.jpeg_picture import EncodedPixels, JpegPicture, stored_picture, write_picture
from lead_trainer.errors import BadData
from lead_trainer.recipes.world.augment import Draw, write_changed

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class WindowPictures(EncodedPixels):
    """Pictures (T, height, width, 3), RGB: a device separates channels in no time, a core not."""

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
        return cls(pictures, (len(pictures), *size, 3), chosen)

    def write_into(self, pixels: Pixels) -> None:
        """Decodes into a contiguous array of this shape; raises BadData for a JPEG that is broken."""
        if self.chosen is None or not self.chosen.changes_pixels:
            for picture, place in zip(self.pictures, pixels, strict=True):
                write_picture(picture, place)
            return
        memory = frame_memory(self.shape)
        write_changed(memory.decoded(self.pictures), self.chosen, memory, pixels)
