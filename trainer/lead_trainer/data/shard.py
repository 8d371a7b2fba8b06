"""A shard: records back to back with a footer index, so that any record is one range read; the layout is in README.md.

`build` writes shards, `session_cache` reads ranges of them, `fsck` walks them. A shard is never changed.
"""

import hashlib
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from lead_trainer.data.record import CorruptRecord, Record, decode_record

HEAD = b"LDSHARD1"
TAIL = b"LDSHEND1"

_TRAILER = struct.Struct("<QQQ8s")  # records, footer offset, footer xxh3-64, tail magic
TRAILER_BYTES = _TRAILER.size
_INDEX = np.dtype([("sample_id", "<u8"), ("offset", "<u8"), ("length", "<u8"), ("xxh3", "<u8")])
ENTRY_BYTES = _INDEX.itemsize

ShardIndex = npt.NDArray[np.void]  # rows of _INDEX
ReadRange = Callable[[int, int], bytes | memoryview]  # offset, length → as many bytes


@dataclass(frozen=True)
class ShardFile:
    """What a written shard is: enough to name, upload and verify it."""

    size: int
    sha256: str
    records: int


def write_shard(path: Path, records: Iterable[tuple[int, bytes]]) -> ShardFile:
    """Writes (sample id, encoded record) pairs in order; equal records give equal bytes."""
    rows: list[tuple[int, int, int, int]] = []
    digest, offset = hashlib.sha256(HEAD), len(HEAD)
    with path.open("wb") as file:
        file.write(HEAD)
        for sample_id, record in records:
            rows.append((sample_id, offset, len(record), xxhash.xxh3_64_intdigest(record)))
            file.write(record)
            digest.update(record)
            offset += len(record)
        footer = np.array(rows, _INDEX).tobytes()
        end = footer + _TRAILER.pack(len(rows), offset, xxhash.xxh3_64_intdigest(footer), TAIL)
        file.write(end)
        digest.update(end)
    return ShardFile(offset + len(end), digest.hexdigest(), len(rows))


def footer_range(trailer: bytes | memoryview, shard_bytes: int) -> tuple[int, int]:
    """Returns (offset, length) of the footer index from a shard's last TRAILER_BYTES; raises CorruptRecord."""
    if len(trailer) != TRAILER_BYTES:
        raise CorruptRecord(f"shard trailer has {len(trailer)} bytes, expected {TRAILER_BYTES}")
    count, offset, _, magic = _TRAILER.unpack(trailer)
    if magic != TAIL:
        raise CorruptRecord(f"shard ends with {magic!r}, expected {TAIL!r}: it is truncated or no shard")
    length = shard_bytes - TRAILER_BYTES - offset
    if offset < len(HEAD) or length < 0 or count * ENTRY_BYTES != length:
        raise CorruptRecord(f"shard trailer names {count} records and a footer at {offset} in {shard_bytes} bytes")
    return offset, length


def parse_footer(footer: bytes | memoryview, trailer: bytes | memoryview) -> ShardIndex:
    """Returns the index rows; raises CorruptRecord unless its checksum holds and all records lie before it."""
    _, footer_offset, expected, _ = _TRAILER.unpack(trailer)
    if xxhash.xxh3_64_intdigest(footer) != expected:
        raise CorruptRecord("shard footer does not match its checksum")
    index: ShardIndex = np.frombuffer(footer, _INDEX)
    limit = np.uint64(footer_offset)
    if np.any(index["offset"] > limit) or np.any(index["length"] > limit - index["offset"]):
        raise CorruptRecord("shard footer names a record outside the shard")
    return index


class ShardReader:
    """Random access to the records of one shard, wherever its bytes lie: on a disk, in a store, in memory."""

    def __init__(self, read: ReadRange, size: int) -> None:
        """Reads the footer of a shard of `size` bytes; `read` returns the bytes at (offset, length)."""
        if size < len(HEAD) + TRAILER_BYTES or read(0, len(HEAD)) != HEAD:
            raise CorruptRecord(f"{size} bytes are no shard: they do not start with {HEAD!r}")
        trailer = read(size - TRAILER_BYTES, TRAILER_BYTES)
        offset, length = footer_range(trailer, size)
        self._read = read
        self._index = parse_footer(read(offset, length), trailer)

    def __len__(self) -> int:
        """Number of records."""
        return len(self._index)

    def record(self, slot: int) -> Record:
        """Returns the checked record at position `slot`; raises CorruptRecord, and what reading raises."""
        return self.read_record(slot)[0]

    def read_record(self, slot: int) -> tuple[Record, bytes | memoryview]:
        """Returns a record as `record` does, and the bytes it was."""
        if slot >= len(self._index):
            raise CorruptRecord(f"the shard has {len(self._index)} records, none at slot {slot}: it is another shard")
        sample_id, offset, length, _ = self._index[slot].item()
        data = self._read(offset, length)
        record = decode_record(data)  # which finds bytes that are missing
        if record.sample_id != sample_id:
            raise CorruptRecord(f"slot {slot} holds sample {record.sample_id}, the footer lists {sample_id}")
        return record, data
