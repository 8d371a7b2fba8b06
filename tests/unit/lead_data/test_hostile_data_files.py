"""Pictures, sweeps, arrays, tables, documents and weights that strangers wrote: BadData or BadConfig that names the
file, within seconds and a bounded memory, whatever their headers claim.
"""

import io
import resource
import struct
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pyarrow import feather

from lead_testing.hostile_child import in_child
from lead_testing.hostile_raw_files import document_parsers, sensor_parsers
from lead_trainer.blocks.stages import read_weights
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.example_worlds.lead.sensors import las_bytes
from lead_trainer.recipes.distill.benchmarks.argoverse2.bounded_table import OverLimit, columns_of
from lead_trainer.recipes.distill.benchmarks.argoverse2.parquet_claims import claimed_page_bytes
from lead_trainer.recipes.distill.benchmarks.argoverse2.scenario import read_scenario
from lead_trainer.recipes.distill.benchmarks.argoverse2.sensor_log import read_sensor_log
from lead_trainer.recipes.distill.ingest.npz import read_npz
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


def png_with(kind: bytes, content: bytes, count: int) -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 0, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress((b"\0" + b"x" * 16) * 16))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(kind, content) * count + pixels + chunk(b"IEND", b"")


PACKED = {b"zTXt": b"k\0\0", b"iTXt": b"k\0\1\0\0\0", b"iCCP": b"k\0\0"}  # what comes before the packed text


@pytest.mark.parametrize("kind", PACKED)
def test_a_png_whose_texts_unpack_to_gigabytes_is_named_with_what_it_has(kind: bytes) -> None:
    """libpng keeps what a chunk unpacks to, 8 MB each.

    Audit: S11
    """
    data = png_with(kind, PACKED[kind] + zlib.compress(b"a" * 7_900_000, 9), 990)
    with bounded(), pytest.raises(BadData, match=r"rgb/0001\.jpg .*: it has \d+ bytes of packed .* at most 16384"):
        decode_picture(data, "rgb/0001.jpg")


def test_a_png_of_many_chunks_is_named_with_what_it_has() -> None:
    """Audit: S11"""
    with bounded(), pytest.raises(BadData, match=r"rgb/0001\.jpg .*: it has more than 64 chunks that are no pixels"):
        decode_picture(png_with(b"tEXt", b"k\0a", 100_000), "rgb/0001.jpg")


def progressive_jpeg(side: int, more: int) -> bytes:
    """Returns a picture whose last scan comes again `more` times."""
    options = [cv2.IMWRITE_JPEG_PROGRESSIVE, 1]
    data = cv2.imencode(".jpg", np.zeros((side, side, 3), np.uint8), options)[1].tobytes()
    last = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + last * more + data[-2:]


def test_a_jpeg_of_very_many_scans_is_named_with_what_it_has() -> None:
    """OpenCV goes over all pixels once a scan: half an hour for two megabytes.

    Audit: S11
    """
    expected = r"rgb/0001\.jpg .*: it has 600\d\d scans of 16000000 pixels, expected at most 67"
    with bounded(), pytest.raises(BadData, match=expected):
        decode_picture(progressive_jpeg(4000, 60_000), "rgb/0001.jpg")


def test_pictures_as_cameras_and_programs_write_them_pass() -> None:
    """A progressive JPEG, and a PNG with a color profile's and a comment's chunks."""
    assert decode_picture(progressive_jpeg(512, 0), "rgb/0001.jpg").shape == (512, 512, 3)
    for kind, before in PACKED.items():
        assert decode_picture(png_with(kind, before + zlib.compress(bytes(3000)), 1), "a.png").shape == (16, 16, 3)


SCENARIO = {"track_id": "7", "object_type": "vehicle", "focal_track_id": "7", "city": "austin", "scenario_id": "s",
            "object_category": 3, "timestep": 0, "position_x": 0.0, "position_y": 0.0, "heading": 0.0,
            "velocity_x": 0.0, "velocity_y": 0.0}  # fmt: skip
POSE = {"timestamp_ns": 0, "qw": 1.0, "qx": 0.0, "qy": 0.0, "qz": 0.0, "tx_m": 0.0, "ty_m": 0.0, "tz_m": 0.0}
CUBOID = POSE | {"track_uuid": "u", "category": "BUS"}


def table_of(row: Mapping[str, Any], rows: int, **columns: Any) -> pa.Table:
    """Returns equal rows, but for these columns; a text is stored once."""
    zero = pa.array(np.zeros(rows, np.int32))
    texts = {name: pa.DictionaryArray.from_arrays(zero, [v]) for name, v in row.items() if isinstance(v, str)}
    numbers = {name: np.full(rows, value) for name, value in row.items() if not isinstance(value, str)}
    return pa.table(numbers | texts | columns)


def parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", store_schema=False)
    return buffer.getvalue()


def feather_file(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    feather.write_feather(table, buffer, compression="zstd")
    return buffer.getvalue()


SCENARIOS = {
    "rows": (lambda: table_of(SCENARIO, 3_000_000), "3000000 rows, expected at most 200000"),
    "a long text that all rows share": (
        lambda: table_of(SCENARIO | {"city": "a" * 1_000_000}, 100_000),
        "1000000 bytes in a text of column city, expected at most 128",
    ),
    "tracks": (
        lambda: table_of(SCENARIO, 150_000, track_id=[str(n) for n in range(150_000)], timestep=[99] * 150_000),
        r"16500000 states \(tracks times steps\), expected at most 2000000",
    ),
    "a list for a number": (lambda: table_of(SCENARIO, 1, heading=[[0.0]]), "lacks the columns heading"),
}


@pytest.mark.parametrize("claim", SCENARIOS)
def test_a_scenario_that_unpacks_to_more_than_any_is_named_with_what_it_has(claim: str) -> None:
    """Audit: S11"""
    table, expected = SCENARIOS[claim]
    data = parquet(table())
    with bounded(), pytest.raises(BadData, match=f"file x.parquet.* it (has )?{expected}"):
        read_scenario(data, "x.parquet")


LOGS = {
    "bytes": (lambda: table_of(CUBOID, 3_000_000), r"\d+ bytes, expected at most 67108864"),
    "rows": (lambda: table_of(CUBOID, 300_000), "262144 rows, expected at most 200000"),
    "rows without bytes": (lambda: table_of(CUBOID, 1, qw=pa.array([1.0])).slice(0, 0), "no rows"),
    "a long text that all rows share": (
        lambda: table_of(CUBOID | {"track_uuid": "a" * 1_000_000}, 100_000),
        "1000000 bytes in a text of column track_uuid, expected at most 128",
    ),
    "tracks at times": (
        lambda: table_of(CUBOID, 2000, track_uuid=[str(n) for n in range(2000)], timestamp_ns=range(2000)),
        r"4000000 states \(tracks times steps\), expected at most 2000000",
    ),
}


@pytest.mark.parametrize("claim", LOGS)
def test_a_log_that_unpacks_to_more_than_any_is_named_with_what_it_has(claim: str) -> None:
    """Audit: S11"""
    table, expected = LOGS[claim]
    annotations, poses = feather_file(table()), feather_file(table_of(POSE, 2000, timestamp_ns=range(2000)))
    with bounded(), pytest.raises(BadData, match=f"log av2/7f.* it has {expected}"):
        read_sensor_log(annotations, poses, "av2/7f")


def test_a_page_that_claims_to_unpack_to_more_than_any_is_named_before_it_is_unpacked() -> None:
    """pyarrow makes room for what the page's own header claims, whatever the index says. Audit: S11"""
    table, buffer = table_of(SCENARIO | {"city": "a" * 1_700_000}, 1), io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", store_schema=False, use_dictionary=False)
    data, group = bytearray(buffer.getvalue()), pq.read_metadata(buffer).row_group(0)
    chunk = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "city")
    assert [1_700_000 < size < 1_700_100 for size in claimed_page_bytes(bytes(data), chunk)] == [True]
    size = slice(chunk.data_page_offset + 3, chunk.data_page_offset + 7)  # behind the header's type and a field's head
    assert data[size.start - 3 : size.start] == b"\x15\x00\x15" and data[size.stop - 1] < 128
    data[size] = b"\xfe\xff\xff\x7f"
    with bounded(), pytest.raises(BadData, match=r"it has \d+ bytes in its pages, expected at most 67108864"):
        read_scenario(bytes(data), "x.parquet")
    for offset in range(chunk.data_page_offset, size.stop, 2):  # what is no header is named too
        spoiled = data[:offset] + b"\xff" + data[offset + 1 :]
        with bounded(), pytest.raises(BadData):
            read_scenario(bytes(spoiled), "x.parquet")


def test_a_parquet_that_lies_about_its_rows_is_counted_while_it_is_read() -> None:
    """What the index claims is no bound: batches are.

    Audit: S11
    """
    batches = table_of(SCENARIO, 400_000).to_batches(10_000)
    with pytest.raises(OverLimit, match="it has 210000 rows, expected at most 200000"):
        columns_of(batches, list(SCENARIO))


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
