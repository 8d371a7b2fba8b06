"""Pictures, sweeps, arrays, tables, documents and weights that strangers wrote: BadData or BadConfig that names the
file, within seconds and a bounded memory, whatever their headers claim.
"""

import io
import resource
import struct
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from lead_testing.hostile_child import in_child
from lead_testing.hostile_raw_files import document_parsers, sensor_parsers
from lead_trainer.blocks.stages import read_weights
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.distill.ingest.npz import read_npz
from lead_trainer.recipes.lead.example_data.sensors import las_bytes
from lead_trainer.recipes.lead.ingest.frame_files import decode_lidar, decode_picture, decode_plane

INPUTS = 150
LONGEST_S, MOST_KIB = 5.0, 256 << 10  # of CPU and of memory, where the claims ask for hours and hundreds of GiB


@contextmanager
def bounded() -> Iterator[None]:
    held, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.thread_time()
    yield
    assert time.thread_time() - begin < LONGEST_S
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < MOST_KIB


def test_spoiled_data_files_of_every_kind_end_in_the_documented_error() -> None:
    """Seeded flips, cuts, huge numbers and odd texts, in a process that may neither crash nor hang.

    Audit: B1
    Audit: S11
    """
    assert in_child(sorted({**sensor_parsers(), **document_parsers()}), range(INPUTS)) == []


CLAIMS = {  # of a LAZ file: place, struct, value
    "points": (107, "<I", 2**32 - 1),
    "points of one more than the limit": (107, "<I", 4_000_001),
    "bytes a point": (105, "<H", 2**16 - 1),
    "records before the points": (100, "<I", 2**32 - 1),
    "a place of the points": (96, "<I", 2**32 - 1),
    "no point format": (104, "<B", 0xFF),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_sweep_that_claims_huge_counts_is_named_at_once(claim: str) -> None:
    """Audit: S11"""
    place, code, value = CLAIMS[claim]
    data = bytearray(las_bytes(np.zeros((50, 3)), np.zeros(50, np.uint8)))
    struct.pack_into(code, data, place, value)
    with bounded(), pytest.raises(BadData, match=r"file lidar/0001\.laz is not a"):
        decode_lidar(bytes(data), "lidar/0001.laz")


@pytest.mark.parametrize("chunks", [2**32 - 1, 2**31, 100_000_000])
def test_a_sweep_whose_table_claims_many_chunks_is_named_at_once(chunks: int) -> None:
    """Audit: S11"""
    data = bytearray(las_bytes(np.zeros((50, 3)), np.zeros(50, np.uint8)))
    (points_at,) = struct.unpack_from("<I", data, 96)
    (table_at,) = struct.unpack_from("<q", data, points_at)
    struct.pack_into("<I", data, table_at + 4, chunks)
    with bounded(), pytest.raises(BadData, match=r"file lidar/0001\.laz is not a"):
        decode_lidar(bytes(data), "lidar/0001.laz")


def chunk(kind: bytes, content: bytes, length: int = -1) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content) if length < 0 else length) + kind + content + struct.pack(">I", checksum)


def png(width: int, height: int, *, length: int = -1) -> bytes:
    pixels = zlib.compress(bytes(1000))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", pixels, length) + chunk(b"IEND", b"")


def jpeg_of_size(width: int, height: int) -> bytes:
    data = bytearray(cv2.imencode(".jpg", np.zeros((16, 16, 3), np.uint8))[1].tobytes())
    at = data.index(b"\xff\xc0")
    struct.pack_into(">HH", data, at + 5, height, width)
    return bytes(data)


PICTURES = {
    "a PNG of 100,000 x 100,000": lambda: png(100_000, 100_000),
    "a PNG whose chunk claims 2 GiB": lambda: png(32, 24, length=2**31 - 1),
    "a JPEG of 65,500 x 65,500": lambda: jpeg_of_size(65_500, 65_500),
    "a TIFF": lambda: cv2.imencode(".tiff", np.zeros((8, 8, 3), np.uint8))[1].tobytes(),
    "a BMP": lambda: cv2.imencode(".bmp", np.zeros((8, 8, 3), np.uint8))[1].tobytes(),
    "a WebP": lambda: cv2.imencode(".webp", np.zeros((8, 8, 3), np.uint8))[1].tobytes(),
}


@pytest.mark.parametrize("picture", PICTURES)
def test_a_picture_of_another_format_or_of_a_huge_size_is_named_at_once(picture: str) -> None:
    """Audit: S11"""
    data = PICTURES[picture]()
    for decode in (decode_picture, decode_plane):
        with bounded(), pytest.raises(BadData, match=r"file rgb/0001\.jpg is not a"):
            decode(data, "rgb/0001.jpg")


def test_arrays_that_unpack_to_more_than_the_limit_are_named_and_not_unpacked() -> None:
    """Audit: S11"""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file, file.open("a.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "|u1", "fortran_order": False, "shape": (1 << 30,)})
        for _ in range(1 << 10):
            member.write(bytes(1 << 20))
    with bounded(), pytest.raises(BadData, match=r"file a\.npz .* its arrays have more than 1073741824 bytes"):
        read_npz(buffer.getvalue(), "a.npz", {"a": ("u1", (None,))})


def test_weights_that_are_damaged_anywhere_are_bad_config(tmp_path: Path) -> None:
    """Audit: B1"""
    saved = io.BytesIO()
    torch.save({"conv.weight": torch.zeros(2, 3), "bn.num_batches_tracked": torch.tensor(4)}, saved)
    whole, file = saved.getvalue(), tmp_path / "weights.pth"
    older = io.BytesIO()
    torch.save({"conv.weight": torch.zeros(2, 3)}, older, _use_new_zipfile_serialization=False)
    for data in (b"", b"\x80", b"nonsense", whole[:100], whole[:-1], older.getvalue()[:150], older.getvalue()[:-4]):
        file.write_bytes(data)
        with pytest.raises(BadConfig, match=r"backbone_weights: .*weights\.pth is no file of weights"):
            read_weights(file)


def test_weights_that_would_unpack_to_more_than_their_file_are_bad_config(tmp_path: Path) -> None:
    """Audit: S11"""
    file = tmp_path / "weights.pth"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("archive/data/0", bytes(64 << 20))
    with bounded(), pytest.raises(BadConfig, match=r"weights\.pth is no file of weights: .* would unpack to"):
        read_weights(file)
