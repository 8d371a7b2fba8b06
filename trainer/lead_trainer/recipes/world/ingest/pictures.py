"""Pictures of a raw tree at the size of the cache: decoded strictly, cut or squeezed, and encoded once.

A JPEG that already has the size stays as it is, so a processed tree and the cache of it hold the same bytes.
"""

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image

from lead_trainer.data.picture_bytes import decoded, why_refused
from lead_trainer.errors import BadData

JPEG_QUALITY = 95
SMALLEST_SIDE = 16  # pixels: less is no camera's picture
THUMB_SIDE = 64  # of the pictures whose difference is a scene's difficulty
_PNG, _PNG_KINDS = b"\x89PNG", (0, 2, 3)  # grey, RGB, palette: those without alpha

Picture = npt.NDArray[np.uint8]  # (H, W, 3) RGB


def read_picture(data: bytes, path: str) -> Picture:
    """Returns the decoded picture; raises BadData naming the file for one that is cut off, odd or of no sane size."""
    fault = why_refused(data) or _png_fault(data)
    picture = None
    if not fault:
        try:
            picture = decoded(data, cv2.IMREAD_COLOR_RGB) if data[:4] == _PNG else simplejpeg.decode_jpeg(data, "RGB")
        except ValueError as error:
            fault = str(error)
    if picture is None:
        raise BadData(f"file {path} is no whole picture: {fault or 'it cannot be decoded'}; restore it")
    height, width = picture.shape[:2]
    if min(height, width) < SMALLEST_SIDE:
        raise BadData(f"file {path}: found {width} x {height} pixels, expected {SMALLEST_SIDE} or more; restore it")
    return np.asarray(picture, np.uint8)


def fitted(picture: Picture, size: tuple[int, int], crop: str) -> Picture:
    """Returns the picture at (height, width) by Pillow's bicubic filter, squeezed, or cut around its centre before."""
    if crop == "centre":
        picture = _centre(picture, size)
    if picture.shape[:2] == size:
        return picture
    resized = Image.fromarray(picture).resize((size[1], size[0]), Image.Resampling.BICUBIC)
    return np.asarray(resized, np.uint8)


def stored(data: bytes, path: str, size: tuple[int, int], crop: str) -> tuple[bytes, Picture]:
    """Returns the JPEG of a cache's record and the picture it was made of; raises BadData like `read_picture`."""
    picture = read_picture(data, path)
    if picture.shape[:2] == size and data[:4] != _PNG:
        return data, picture
    picture = fitted(picture, size, crop)
    return encoded(picture), picture


def encoded(picture: Picture) -> bytes:
    """Returns a JPEG of quality 95 with full colour resolution."""
    whole = np.ascontiguousarray(picture)
    return bytes(simplejpeg.encode_jpeg(whole, JPEG_QUALITY, "RGB", colorsubsampling="444", fastdct=False))


def thumbnail(picture: Picture) -> npt.NDArray[np.float32]:
    """Returns the picture at 64 x 64 pixels in [0, 1], each the mean of its part."""
    small = cv2.resize(picture, (THUMB_SIDE, THUMB_SIDE), interpolation=cv2.INTER_AREA)
    return np.asarray(small, np.float32) / np.float32(255.0)


def _centre(picture: Picture, size: tuple[int, int]) -> Picture:
    """Returns the largest part around the centre with the aspect of `size`."""
    height, width = picture.shape[:2]
    rows = min(height, round(width * size[0] / size[1]))
    columns = min(width, round(height * size[1] / size[0]))
    top, left = (height - rows) // 2, (width - columns) // 2
    return picture[top : top + rows, left : left + columns]


def _png_fault(data: bytes) -> str:
    """Says why a PNG cannot be one of 8-bit colours in 0 … 255, empty for JPEGs and those that can."""
    if data[:4] != _PNG:
        return ""
    depth, kind = data[24], data[25]
    if depth > 8 or kind not in _PNG_KINDS:
        return (
            f"it is a PNG of {depth} bits a channel{'' if kind in _PNG_KINDS else ' with alpha'}, expected 8 bits, RGB"
        )
    return ""
