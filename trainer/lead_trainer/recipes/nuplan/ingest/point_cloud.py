"""Point clouds of `MergedPointCloud`: PCD 0.7 files of binary data; places are floats, the rest as the header says.

Zero bytes follow the points of nuPlan's files; they are no points. A file of no points is a sweep that met nothing.
"""

import math

import numpy as np
import numpy.typing as npt

from lead_trainer.errors import BadData

MAX_POINTS, MAX_HEADER_BYTES, MAX_FIELDS = 4_000_000, 4096, 16
MAX_DISTANCE_M = 10_000.0  # of a point from the lidar, which sees some 200 m
VIEWPOINT_NUMBERS = 7  # a place and a quaternion
FIELDS = ("x", "y", "z", "intensity", "ring", "lidar_info")
_TYPES = {"F": {4: "<f4", 8: "<f8"}, "U": {1: "u1", 2: "<u2", 4: "<u4"}, "I": {1: "i1", 2: "<i2", 4: "<i4"}}

Float32 = npt.NDArray[np.float32]


def read_point_cloud(data: bytes, path: str) -> Float32:
    """Returns (6, n) in the file's order: x, y, z in the lidar's frame (m), intensity, ring, number of the lidar.

    Raises BadData naming the file for an ASCII file, a header that contradicts itself, data that are too short or go
    on behind the points, and places that are not finite or farther than a lidar sees.
    """
    header, begin = _header(data, path)
    names, kinds = header["FIELDS"], []
    missing = [name for name in FIELDS if name not in names]
    if missing or len(set(names)) < len(names) or len(names) > MAX_FIELDS:
        raise BadData(f"file {path}: FIELDS: found {' '.join(names)}, expected {' '.join(FIELDS)}; restore it")
    for name, size, kind, count in zip(names, header["SIZE"], header["TYPE"], header["COUNT"], strict=True):
        code = _TYPES.get(kind, {}).get(_number(size, path, "SIZE"))
        if code is None or count != "1":
            raise BadData(
                f"file {path}: field {name} is of type {kind}{size} x {count}, which is none of PCD; restore it"
            )
        if name in FIELDS[:3] and kind != "F":
            raise BadData(f"file {path}: field {name}: found type {kind}, expected F: metres; restore it")
        kinds.append((name, code))
    points, width, height = (_number(header[key][0], path, key) for key in ("POINTS", "WIDTH", "HEIGHT"))
    if points != width * height or points > MAX_POINTS:
        raise BadData(
            f"file {path}: POINTS: found {points}, expected WIDTH x HEIGHT, {width} x {height}, "
            f"and at most {MAX_POINTS}; restore it"
        )
    row = np.dtype(kinds)
    if len(data) - begin < points * row.itemsize:
        raise BadData(
            f"file {path}: found {len(data) - begin} bytes of points, expected {points * row.itemsize}: "
            "it is cut off; restore it"
        )
    if data[begin + points * row.itemsize :].strip(b"\0"):
        raise BadData(
            f"file {path}: found more data behind its {points} points, expected zero bytes or the end; restore it"
        )
    table = np.frombuffer(data, row, points, begin)
    cloud = np.stack([table[name].astype(np.float32) for name in FIELDS])
    if not np.isfinite(cloud).all():
        bad = int(np.flatnonzero(~np.isfinite(cloud).all(axis=0))[0])
        raise BadData(f"file {path}: point {bad} is {cloud[:3, bad].tolist()}, expected finite numbers; restore it")
    far = np.flatnonzero((np.abs(cloud[:3]) > MAX_DISTANCE_M).any(axis=0))
    if len(far):
        bad = int(far[0])
        raise BadData(
            f"file {path}: point {bad} is {cloud[:3, bad].tolist()}, expected at most {MAX_DISTANCE_M:g} m from the "
            "lidar; restore it"
        )
    return cloud


def _header(data: bytes, path: str) -> tuple[dict[str, list[str]], int]:
    """Returns the header's words by key, and where the points begin."""
    found: dict[str, list[str]] = {}
    at = 0
    while at < MAX_HEADER_BYTES:
        end = data.find(b"\n", at, MAX_HEADER_BYTES)
        if end < 0:
            break
        words = data[at:end].decode("ascii", "replace").split()
        at = end + 1
        if words and not words[0].startswith("#"):
            found[words[0]] = words[1:]
        if words[:1] == ["DATA"]:
            return _checked(found, path), at
    raise BadData(f"file {path}: is no PCD file: there is no line DATA in its header; restore it")


def _checked(header: dict[str, list[str]], path: str) -> dict[str, list[str]]:
    if header["DATA"] != ["binary"]:
        raise BadData(f"file {path}: DATA: found {' '.join(header['DATA'])!r}, expected 'binary'; restore it")
    fields = header.get("FIELDS", [])
    header.setdefault("COUNT", ["1"] * len(fields))
    for key, count in {
        **dict.fromkeys(("SIZE", "TYPE", "COUNT"), len(fields)),
        "POINTS": 1,
        "WIDTH": 1,
        "HEIGHT": 1,
    }.items():
        if len(header.get(key, [])) != count or not count:
            raise BadData(f"file {path}: {key}: found {header.get(key)}, expected {count} values; restore it")
    if (viewpoint := header.get("VIEWPOINT")) is not None and not _finite(viewpoint):
        raise BadData(
            f"file {path}: VIEWPOINT: found {' '.join(viewpoint)[:60]!r}, expected {VIEWPOINT_NUMBERS} finite numbers; "
            "restore it"
        )
    return header


def _finite(words: list[str]) -> bool:
    try:
        return len(words) == VIEWPOINT_NUMBERS and all(math.isfinite(float(word)) for word in words)
    except ValueError:
        return False


def _number(text: str, path: str, key: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise BadData(f"file {path}: {key}: found {text[:20]!r}, expected a whole number; restore it")
    return int(text)
