"""The sensor files of one frame as arrays: pictures, label planes, LiDAR, radar; used by the preparation only.

Paths follow LEAD's tree (`data/<Scenario>/<route>/<folder>/<frame>.<suffix>`); a file that cannot be decoded whole is
a BadData that names it.
"""

import io
import struct
from dataclasses import dataclass

import cv2
import laspy
import numpy as np
import numpy.typing as npt

from lead_trainer.data.picture_bytes import decoded, why_refused
from lead_trainer.errors import BadData
from lead_trainer.recipes.npz_arrays import npz_arrays

UInt8 = npt.NDArray[np.uint8]
RADAR_COLUMNS = 4  # x, y, z, velocity
MAX_POINTS, MAX_POINT_BYTES, MAX_RECORDS = 4_000_000, 256, 64  # of a LAZ file; LEAD's sweeps have some 30,000 points
_LAS_HEADER = 227  # bytes of the shortest header, that of LAS 1.2
_LAS_COUNTS = struct.Struct("<IIBHI")  # where points begin, records before them, format, bytes a point, points
_LAS_1_4_COUNTS = struct.Struct("<IQ")  # records behind the points, points
_COMPRESSED = 0x80  # of the point format
_LAZ_TABLE, _LAZ_CHUNKS = struct.Struct("<q"), struct.Struct("<II")  # where the chunks' table is; version, chunks


@dataclass(frozen=True)
class LidarPoints:
    """One merged sweep in the ego frame."""

    xyz: npt.NDArray[np.float64]  # (N, 3) metres
    age: npt.NDArray[np.uint8]  # (N,) simulator steps, 0 newest


def decode_picture(data: bytes, path: str) -> UInt8:
    """Returns an (H, W, 3) RGB picture."""
    picture = decoded(data, cv2.IMREAD_COLOR)
    if picture is None:
        raise BadData(f"file {path} is not a valid picture {_found(data)}")
    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB), np.uint8)


def decode_plane(data: bytes, path: str) -> npt.NDArray[np.uint8] | npt.NDArray[np.uint16]:
    """Returns an (H, W) label plane as stored, 8 or 16 bit."""
    plane = decoded(data, cv2.IMREAD_UNCHANGED)
    if plane is None or plane.ndim != 2 or plane.dtype not in (np.uint8, np.uint16):
        raise BadData(f"file {path} is not a valid one-channel picture of 8 or 16 bit {_found(data)}")
    return np.asarray(plane)


def _found(data: bytes) -> str:
    why = why_refused(data)
    return f"({len(data)} bytes): {why}" if why else f"({len(data)} bytes)"


def decode_lidar(data: bytes, path: str) -> LidarPoints:
    """Returns the points of a `.laz` file with their age."""
    try:
        _check_las(data)
        cloud = laspy.read(io.BytesIO(data))
        return LidarPoints(np.asarray(cloud.xyz, np.float64), np.asarray(cloud["time"], np.uint8))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # laspy and lazrs raise classes of their own; a panic of Rust is no Exception
        raise BadData(f"file {path} is not a valid LAZ file with a dimension `time`: {error}") from error


def _check_las(data: bytes) -> None:
    """Raises ValueError for counts that laspy and lazrs would follow for hours, or allocate memory for."""
    if data[:4] != b"LASF" or len(data) < _LAS_HEADER:
        raise ValueError("it has no header")
    points_at, records, kind, length, count = _LAS_COUNTS.unpack_from(data, 96)
    if data[25] >= 4:  # LAS 1.4 counts in 64 bits, and has records behind the points
        more, whole = _LAS_1_4_COUNTS.unpack_from(data, 243)
        records, count = records + more, max(count, whole)
    if records > MAX_RECORDS or count > MAX_POINTS or length > MAX_POINT_BYTES:
        raise ValueError(f"it has {count} points of {length} bytes and {records} records")
    if not kind & _COMPRESSED:
        return
    (chunks_at,) = _LAZ_TABLE.unpack_from(data, points_at)
    if chunks_at == -1:  # a writer that could not seek leaves it at the end
        (chunks_at,) = _LAZ_TABLE.unpack_from(data, len(data) - 8)
    _, chunks = _LAZ_CHUNKS.unpack_from(data, chunks_at)
    if chunks > max(1, count):
        raise ValueError(f"it has {chunks} chunks of {count} points")


def decode_radar(data: bytes, path: str, sensors: int) -> list[npt.NDArray[np.float16]]:
    """Returns (N, 4) points x, y, z, velocity of `radar1` ... `radar<sensors>`."""
    try:
        with npz_arrays(data) as archive:
            clouds = [np.asarray(archive[f"radar{sensor + 1}"], np.float16) for sensor in range(sensors)]
    except Exception as error:  # zipfile, zlib and numpy each raise their own
        raise BadData(f"file {path} is not a valid npz file of {sensors} radars: {error}") from error
    for cloud in clouds:
        if cloud.ndim != 2 or cloud.shape[1] != RADAR_COLUMNS:
            raise BadData(f"file {path}: a radar has shape {cloud.shape}, expected (N, {RADAR_COLUMNS})")
    return clouds
