"""Made-up samples in the shapes and sizes of LEAD's, the one decode function of every system, and digests.

Imported by both environments, so it needs no more than numpy, OpenCV, simplejpeg, lz4 and xxhash. A sample is a pure
function of its number; there are CONTENTS different ones, then they come again under other numbers, which no system
makes use of.
Its bytes are two fields: `image` (JPEG) and `planes` (the label planes, 781 kB, in one lz4 block of about 68 kB).
"""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import cv2
import lz4.block
import numpy as np
import simplejpeg
import xxhash

Sample = dict[str, Any]

HEIGHT, WIDTH = 384, 1152
OCCUPANCY_WINDOW = (slice(352, 672), slice(320, 704))  # of LEAD's 1024 x 1024 plane
DEPTH_METRES = np.float32(50)  # of the largest code
LIDAR_MOST = np.float32(5)  # points counted in a cell
TEXTURES = 8
CONTENTS = 128
QUALITY = 30  # of a JPEG where LEAD collects on a cluster: 35 kB; 90 on a laptop: 114 kB
SAMPLE_BYTES = 104_000  # about, at QUALITY
PLANES: dict[str, tuple[int, ...]] = {
    "semantic": (HEIGHT, WIDTH),
    "depth": (96, 288),
    "lidar": (320, 384),
    "occupancy": (320, 384),
    "map": (256, 256),
}


def raw_planes(number: int) -> dict[str, np.ndarray]:
    """Returns the label planes of a sample as recorded, u8: occupancy is still (1024, 1024)."""
    planes = _base_planes(number % TEXTURES)
    return {name: np.roll(plane, number * 37, axis=1) for name, plane in planes.items()}


def jpeg(number: int, quality: int) -> bytes:
    """Returns the camera picture of a sample, 1152 x 384."""
    good, data = cv2.imencode(".jpg", np.roll(_base_picture(number % TEXTURES), number * 61, axis=1),
                              [int(cv2.IMWRITE_JPEG_QUALITY), quality])  # fmt: skip
    if not good:
        raise RuntimeError("OpenCV wrote no JPEG")
    return bytes(data.tobytes())


def packed_planes(planes: Mapping[str, np.ndarray]) -> bytes:
    """Returns the planes as one lz4 block, occupancy cut to its window."""
    cut = {**planes, "occupancy": planes["occupancy"][OCCUPANCY_WINDOW]}
    plain = b"".join(np.ascontiguousarray(cut[name]).tobytes() for name in PLANES)
    return bytes(lz4.block.compress(plain, mode="high_compression", compression=4, store_size=True))


def decode(image: bytes | memoryview, planes: bytes | memoryview) -> Sample:
    """Returns the arrays that a GPU finishes: picture (384, 1152, 3) in BGR and the planes, all u8, 2.1 MB."""
    return {"picture": simplejpeg.decode_jpeg(image, "BGR"), **decode_planes(planes)}


def decode_planes(planes: bytes | memoryview) -> Sample:
    """Returns the label planes of a sample, all u8."""
    plain, at = lz4.block.decompress(planes), 0
    sample: Sample = {}
    for name, shape in PLANES.items():
        size = math.prod(shape)
        sample[name] = np.frombuffer(plain, np.uint8, size, at).reshape(shape)
        at += size
    return sample


def shard_bytes(count: int) -> int:
    """Returns the size of the shards of `count` samples in every format: 32 MiB, less where that makes too few."""
    return int(min(32 * 2**20, max(2**20, count * SAMPLE_BYTES // 8)))


def finished(sample: Mapping[str, Any]) -> Sample:
    """Returns what LEAD's data set returns: RGB (3, 384, 1152) u8, depth in metres at picture size, LiDAR in 0…1."""
    depth = np.asarray(sample["depth"]).astype(np.float32) / np.float32(255) * DEPTH_METRES
    rgb = cv2.cvtColor(np.asarray(sample["picture"]), cv2.COLOR_BGR2RGB)
    return {
        "rgb": np.ascontiguousarray(rgb.transpose(2, 0, 1)),
        "semantic": np.asarray(sample["semantic"]),
        "depth": cv2.resize(depth, (WIDTH, HEIGHT), interpolation=cv2.INTER_LINEAR),
        "lidar": np.asarray(sample["lidar"]).astype(np.float32) / LIDAR_MOST,
        "occupancy": np.asarray(sample["occupancy"]),
        "map": np.asarray(sample["map"]),
    }


def digest(sample: Mapping[str, Any]) -> str:
    """Returns number and digest of a sample, finished or not: the same for both."""
    arrays = sample if "rgb" in sample else finished(sample)
    hashed = xxhash.xxh3_128()
    for name in ("rgb", *PLANES):
        hashed.update(np.ascontiguousarray(arrays[name]).data)
    return f"{int(sample['index']):06d} {hashed.hexdigest()}"


def digest_of_all(digests: list[str]) -> str:
    """Returns one digest of an epoch's samples, whatever their order."""
    return str(xxhash.xxh3_128("".join(sorted(digests))).hexdigest())


@cache
def _base_picture(texture: int) -> np.ndarray:
    rng = np.random.default_rng(texture)
    picture = np.zeros((HEIGHT, WIDTH, 3), np.float32)
    for cells, amplitude in ((4, 60.0), (16, 40.0), (64, 20.0), (128, 6.0)):
        noise = rng.standard_normal((cells, 3 * cells, 3)).astype(np.float32)
        picture += amplitude * cv2.resize(noise, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)
    return np.clip(picture + 120 + rng.normal(0, 2, picture.shape), 0, 255).astype(np.uint8)


@cache
def _base_planes(texture: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1000 + texture)

    def classes(shape: tuple[int, int], cells: int, count: int) -> np.ndarray:
        field = cv2.resize(rng.random((cells, 2 * cells)).astype(np.float32), shape[::-1])
        return np.asarray(np.clip(field * count, 0, count - 1), np.uint8)

    walls = classes((320, 384), 24, 8) == 4  # points stand close together, as on what reflects them
    lidar = walls * (rng.random(PLANES["lidar"]) < 0.08) * rng.integers(1, 6, PLANES["lidar"])
    return {
        "semantic": classes((HEIGHT, WIDTH), 8, 11),
        "depth": classes((96, 288), 6, 256),
        "lidar": lidar.astype(np.uint8),
        "occupancy": classes((1024, 1024), 20, 12) * (classes((1024, 1024), 20, 2) > 0),
        "map": classes((256, 256), 6, 9),
    }
