"""Encoded pictures of somebody else's, decoded by OpenCV: JPEG and PNG alone, and none of a size that fills a pod.

OpenCV knows twenty formats by their first bytes, whatever a file is called; the datasets have two. The picture's size,
the lengths and numbers of a PNG's chunks and the scans of a JPEG are read before OpenCV allocates memory for them or
works for minutes.
"""

import struct
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

MAX_PIXELS = 16 * 1024 * 1024  # a camera of LEAD's has one million
MAX_SCANS = 256  # of a progressive JPEG, which has ten; of a large one MAX_SCANNED pixels over all scans
MAX_SCANNED = 64 * MAX_PIXELS  # some seconds
MAX_EXTRAS, MAX_PACKED = 64, 16 * 1024  # chunks of a PNG besides its pixels; bytes of those that libpng unpacks, 1:1000
_JPEG, _PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
_CHUNK = struct.Struct(">I4s")  # bytes of its content, which a checksum of four follows; kind
_PIXELS, _PACKED = b"IDAT", frozenset({b"zTXt", b"iTXt", b"iCCP"})
_SCAN = b"\xff\xda"  # never among a JPEG's pixels, where a zero follows 0xff
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})  # JPEG markers with a picture's size


def decoded(data: bytes | memoryview, flags: int) -> npt.NDArray[Any] | None:
    """Returns the picture as `cv2.imdecode` does with these flags, None where it is no JPEG or PNG of a sane size."""
    if why_refused(data):
        return None
    try:
        return cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error:
        return None


def why_refused(data: bytes | memoryview) -> str:
    """Returns why OpenCV is not given these bytes, with what was found and expected; empty where it is."""
    view = memoryview(data)
    if view[: len(_PNG)] == _PNG:
        size, fault = (int.from_bytes(view[16:20], "big"), int.from_bytes(view[20:24], "big")), _png_fault(view)
    elif view[: len(_JPEG)] == _JPEG:
        found = _jpeg_size(view)
        if found is None:
            return "it is a JPEG without a size"
        size, fault = found, _scans_fault(data, found[0] * found[1])
    else:
        return "it is neither JPEG nor PNG"
    if size[0] * size[1] > MAX_PIXELS:
        return f"it has {size[0]} x {size[1]} pixels, expected at most {MAX_PIXELS}"
    return fault


def _png_fault(data: memoryview) -> str:
    at, extras, packed = len(_PNG), 0, 0
    while at + _CHUNK.size <= len(data):
        length, kind = _CHUNK.unpack_from(data, at)
        at += _CHUNK.size + length + 4
        if at > len(data):  # OpenCV allocates the length first: up to 2 GiB for a file of some bytes
            return f"a chunk claims {length} bytes, more than the file has"
        extras += kind != _PIXELS
        packed += length if kind in _PACKED else 0
        if extras > MAX_EXTRAS:
            return f"it has more than {MAX_EXTRAS} chunks that are no pixels, expected at most {MAX_EXTRAS}"
        if packed > MAX_PACKED:
            return f"it has {packed} bytes of packed text and color profiles, expected at most {MAX_PACKED}"
        if kind == b"IEND":
            break
    return ""


def _scans_fault(data: bytes | memoryview, pixels: int) -> str:
    scans = (data if isinstance(data, bytes) else bytes(data)).count(_SCAN)
    limit = min(MAX_SCANS, MAX_SCANNED // max(1, pixels))
    return f"it has {scans} scans of {pixels} pixels, expected at most {limit}" if scans > limit else ""


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
