"""Pictures of all cameras of a sample, which are decoded, coloured and mirrored one by one where a batch wants them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.data.frame_memory import frame_memory
from lead_trainer.data.jpeg_picture import EncodedPixels, JpegPicture, stored_picture, write_picture
from lead_trainer.errors import BadData
from lead_trainer.recipes.nuplan.augment import Draw, write_coloured

UNCHANGED = Draw()
Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class RigPictures(EncodedPixels):
    """Pictures (C, height, width, 3), RGB: a device separates channels in no time, a core not."""

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
        return cls(tuple(pictures), (len(pictures), *size, 3), chosen)

    def mirrored(self) -> Self:
        """Returns the pictures with left and right changed."""
        return replace(self, flipped=not self.flipped)

    def write_into(self, pixels: Pixels) -> None:
        """Decodes into a contiguous array of this shape; raises BadData for a JPEG that is broken."""
        if self.chosen.changes_colours:
            memory = frame_memory(self.shape)
            write_coloured(memory.decoded(self.pictures), self.chosen, memory, pixels)
        else:
            for picture, place in zip(self.pictures, pixels, strict=True):
                write_picture(picture, place)
        if self.flipped:
            for place in pixels:
                cv2.flip(place, 1, dst=place)
