"""The sensor files of one frame as arrays: pictures, label planes, LiDAR, radar; used by the preparation only.

Paths follow LEAD's tree (`data/<Scenario>/<route>/<folder>/<frame>.<suffix>`); a file that cannot be decoded whole is
a BadData that names it.
"""

import io
from dataclasses import dataclass

import cv2
import laspy
import numpy as np
import numpy.typing as npt

from lead_trainer.errors import BadData
from lead_trainer.recipes.npz_arrays import npz_arrays

UInt8 = npt.NDArray[np.uint8]
RADAR_COLUMNS = 4  # x, y, z, velocity


@dataclass(frozen=True)
class LidarPoints:
    """One merged sweep in the ego frame."""

    xyz: npt.NDArray[np.float64]  # (N, 3) metres
    age: npt.NDArray[np.uint8]  # (N,) simulator steps, 0 newest


def decode_picture(data: bytes, path: str) -> UInt8:
    """Returns an (H, W, 3) RGB picture."""
    picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) if data else None
    if picture is None:
        raise BadData(f"file {path} is not a sound picture ({len(data)} bytes)")
    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB), np.uint8)


def decode_plane(data: bytes, path: str) -> npt.NDArray[np.uint8] | npt.NDArray[np.uint16]:
    """Returns an (H, W) label plane as stored, 8 or 16 bit."""
    plane = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED) if data else None
    if plane is None or plane.ndim != 2 or plane.dtype not in (np.uint8, np.uint16):
        raise BadData(f"file {path} is not a sound one-channel picture of 8 or 16 bit ({len(data)} bytes)")
    return np.asarray(plane)


def decode_lidar(data: bytes, path: str) -> LidarPoints:
    """Returns the points of a `.laz` file with their age."""
    try:
        cloud = laspy.read(io.BytesIO(data))
        return LidarPoints(np.asarray(cloud.xyz, np.float64), np.asarray(cloud["time"], np.uint8))
    except Exception as error:  # laspy and lazrs raise classes of their own, some of them not public
        raise BadData(f"file {path} is not a sound LAZ file with a dimension `time`: {error}") from error


def decode_radar(data: bytes, path: str, sensors: int) -> list[npt.NDArray[np.float16]]:
    """Returns (N, 4) points x, y, z, velocity of `radar1` ... `radar<sensors>`."""
    try:
        with npz_arrays(data) as archive:
            clouds = [np.asarray(archive[f"radar{sensor + 1}"], np.float16) for sensor in range(sensors)]
    except Exception as error:  # zipfile, zlib and numpy each raise their own
        raise BadData(f"file {path} is not a sound npz file of {sensors} radars: {error}") from error
    for cloud in clouds:
        if cloud.ndim != 2 or cloud.shape[1] != RADAR_COLUMNS:
            raise BadData(f"file {path}: a radar has shape {cloud.shape}, expected (N, {RADAR_COLUMNS})")
    return clouds
