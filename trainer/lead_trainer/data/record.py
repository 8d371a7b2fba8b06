"""One sample as bytes: named fields behind a checked header, without pickle; the layout is in README.md.

Written by `build`, read by `session_cache` and `cache_reader`. Reading never trusts a length before it is checked
against the buffer, and never copies a field.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import xxhash

MAGIC = b"LDR1"
VERSION = 1
ALIGN = 8
MAX_FIELDS = 256
MAX_RECORD_BYTES = 1 << 31

_HEADER = struct.Struct("<4sHHQI4x")  # magic, version, fields, sample id, total length, padding
_ENTRY = struct.Struct("<II")  # offset from the record's start, length
_CHECKSUM = struct.Struct("<Q")


class CorruptRecord(ValueError):
    """The bytes are not a valid record; the message names the failed check."""


@dataclass(frozen=True)
class Record:
    """A checked record; the fields are views into the buffer it was read from."""

    sample_id: int
    fields: Mapping[str, memoryview]


def encode_record(sample_id: int, fields: Mapping[str, bytes]) -> bytes:
    """Returns the record of one sample, a multiple of 8 bytes; equal fields give equal bytes in any order."""
    names = sorted(fields)
    if len(names) > MAX_FIELDS:
        raise ValueError(f"a record holds at most {MAX_FIELDS} fields, found {len(names)}")
    encoded = {name: name.encode("ascii") for name in names}
    offset = _aligned(_HEADER.size + sum(1 + len(encoded[name]) + _ENTRY.size for name in names))
    table, parts = bytearray(), []
    for name in names:
        data = bytes(fields[name])
        table += bytes([len(encoded[name])]) + encoded[name] + _ENTRY.pack(offset, len(data))
        parts.append(data + bytes(_aligned(len(data)) - len(data)))
        offset += len(parts[-1])
    total = offset + _CHECKSUM.size
    if total > MAX_RECORD_BYTES:
        raise ValueError(
            f"record of sample {sample_id} would have {total} bytes, at most {MAX_RECORD_BYTES} are allowed"
        )
    head = _HEADER.pack(MAGIC, VERSION, len(names), sample_id, total) + bytes(table)
    body = head + bytes(_aligned(len(head)) - len(head)) + b"".join(parts)
    return body + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(body))


def decode_record(buffer: bytes | memoryview) -> Record:
    """Returns the record that fills `buffer`; raises CorruptRecord, and never reads past the buffer."""
    view = memoryview(buffer).cast("B")
    if len(view) < _HEADER.size + _CHECKSUM.size:
        raise CorruptRecord(f"record has {len(view)} bytes, fewer than an empty one")
    magic, version, count, sample_id, total = _HEADER.unpack_from(view)
    if magic != MAGIC:
        raise CorruptRecord(f"record starts with {bytes(magic)!r}, expected {MAGIC!r}")
    if version != VERSION:
        raise CorruptRecord(f"record has format version {version}, this program reads {VERSION}")
    if total != len(view):
        raise CorruptRecord(f"record claims {total} bytes, found {len(view)}")
    body = view[: -_CHECKSUM.size]
    (expected,) = _CHECKSUM.unpack_from(view, len(body))
    found = xxhash.xxh3_64_intdigest(body)
    if found != expected:
        raise CorruptRecord(f"record of sample {sample_id} has checksum {found:016x}, expected {expected:016x}")
    return Record(sample_id, _fields(body, count))


def _fields(body: memoryview, count: int) -> dict[str, memoryview]:
    if count > MAX_FIELDS:
        raise CorruptRecord(f"record claims {count} fields, at most {MAX_FIELDS} are allowed")
    position, fields = _HEADER.size, {}
    for _ in range(count):
        if position >= len(body):
            raise CorruptRecord("field table is longer than the record")
        name_end = position + 1 + body[position]
        if name_end + _ENTRY.size > len(body):
            raise CorruptRecord("field table is longer than the record")
        offset, length = _ENTRY.unpack_from(body, name_end)
        if offset + length > len(body):
            raise CorruptRecord(f"a field reaches to byte {offset + length} of a record of {len(body)}")
        try:
            name = bytes(body[position + 1 : name_end]).decode("ascii")
        except UnicodeDecodeError as error:
            raise CorruptRecord("a field name is not ASCII") from error
        fields[name] = body[offset : offset + length].toreadonly()
        position = name_end + _ENTRY.size
    return fields


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN
