"""Pictures that are still JPEGs, so that their pixels are first written where they are wanted: the row of a batch.

libjpeg-turbo writes them there with the GIL released. Its pixels are OpenCV's, bit for bit; what only OpenCV reads (a
rotation in EXIF, grey or CMYK pictures, other formats) is decoded by it at once.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg

from lead_trainer.data.picture_bytes import decoded as decoded_picture
from lead_trainer.errors import BadData

Pixels = npt.NDArray[np.uint8]
Channels = Literal["RGB", "BGR"]
_EXIF_WITHIN = 256  # bytes; an EXIF segment comes first, or after JFIF's


class EncodedPixels(ABC):
    """An array of u8 that is not decoded yet; numpy decodes it where it meets one, `write_into` does without a copy."""

    __slots__ = ()
    dtype: ClassVar[np.dtype[np.uint8]] = np.dtype(np.uint8)
    shape: tuple[int, ...]

    @abstractmethod
    def write_into(self, pixels: Pixels) -> None:
        """Decodes into a contiguous array of this shape; raises BadData for a JPEG that is broken."""

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[np.generic]:
        """Returns the decoded pixels."""
        pixels = np.empty(self.shape, np.uint8)
        self.write_into(pixels)
        return pixels if dtype is None else pixels.astype(dtype, copy=False)


@dataclass(frozen=True, slots=True)
class JpegPicture(EncodedPixels):
    """A picture (height, width, 3)."""

    jpeg: memoryview
    shape: tuple[int, int, int]
    channels: Channels

    def write_into(self, pixels: Pixels) -> None:
        """Decodes into a contiguous array of this shape; raises BadData for a JPEG that is broken."""
        try:
            simplejpeg.decode_jpeg(self.jpeg, self.channels, buffer=pixels)
        except ValueError:  # OpenCV forgives more, some versions of it
            pixels[...] = _by_opencv(self.jpeg, self.channels)


def stored_picture(image: memoryview, channels: Channels = "RGB") -> JpegPicture | Pixels:
    """Returns the picture (height, width, 3) of an encoded image; raises BadData where it is none."""
    try:
        height, width, stored_as, _ = simplejpeg.decode_jpeg_header(image)
    except ValueError:
        return _by_opencv(image, channels)
    if stored_as != "YCbCr" or b"Exif" in bytes(image[:_EXIF_WITHIN]):
        return _by_opencv(image, channels)
    return JpegPicture(image, (height, width, 3), channels)


def write_picture(picture: JpegPicture | Pixels, pixels: Pixels) -> None:
    """Writes a picture of `stored_picture` into a contiguous array of its shape; raises BadData for a broken JPEG."""
    if isinstance(picture, JpegPicture):
        picture.write_into(pixels)
    else:
        np.copyto(pixels, picture)


def decoded(value: object) -> object:
    """Returns a sample's value, pixels instead of encoded ones."""
    return np.asarray(value) if isinstance(value, EncodedPixels) else value


def _by_opencv(image: memoryview, channels: Channels) -> Pixels:
    picture = decoded_picture(image, cv2.IMREAD_COLOR)
    if picture is None:
        raise BadData("the camera picture of a checked record cannot be decoded; build the cache again")
    return np.asarray(picture if channels == "BGR" else cv2.cvtColor(picture, cv2.COLOR_BGR2RGB), np.uint8)
