"""Encoded pictures of somebody else's, decoded by OpenCV: JPEG and PNG alone, and none of a size that fills a pod.

OpenCV knows twenty formats by their first bytes, whatever a file is called; the datasets have two. The picture's size
and the lengths of a PNG's chunks are read before OpenCV allocates memory for them.
"""

import struct
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

MAX_PIXELS = 16 * 1024 * 1024  # a camera of LEAD's has one million
_JPEG, _PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
_CHUNK = struct.Struct(">I4s")  # bytes of its content, which a checksum of four follows; kind
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})  # JPEG markers that tell a picture's size


def decoded(data: bytes | memoryview, flags: int) -> npt.NDArray[Any] | None:
    """Returns the picture as `cv2.imdecode` does with these flags, None where it is no JPEG or PNG of a sane size."""
    size = _size(memoryview(data))
    if size is None or size[0] * size[1] > MAX_PIXELS:
        return None
    try:
        return cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error:
        return None


def _size(data: memoryview) -> tuple[int, int] | None:
    if data[: len(_PNG)] == _PNG:
        return _png_size(data)
    return _jpeg_size(data) if data[: len(_JPEG)] == _JPEG else None


def _png_size(data: memoryview) -> tuple[int, int] | None:
    at = len(_PNG)
    while at + _CHUNK.size <= len(data):
        length, kind = _CHUNK.unpack_from(data, at)
        at += _CHUNK.size + length + 4
        if at > len(data):  # OpenCV allocates the length first: up to 2 GiB for a file of some bytes
            return None
        if kind == b"IEND":
            break
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def _jpeg_size(data: memoryview) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data):
        if data[at] != 0xFF:  # decoders skip what lies between two segments
            at += 1
            continue
        marker = data[at + 1]
        if marker in _FRAMES:
            return int.from_bytes(data[at + 5 : at + 7], "big"), int.from_bytes(data[at + 7 : at + 9], "big")
        if marker in {0xFF, 0x00, 0x01} or 0xD0 <= marker <= 0xD8:  # fill bytes, and markers without a segment
            at += 1 if marker == 0xFF else 2
        elif marker in {0xD9, 0xDA}:  # the end, or pixels before any size
            return None
        else:
            at += 2 + max(2, int.from_bytes(data[at + 2 : at + 4], "big"))
    return None
