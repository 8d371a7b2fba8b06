"""Several small arrays in one field of a record: a JSON table of names, types and shapes, then the raw bytes.

Little-endian, C order, no pickle; optionally one lz4 block, because label planes of one frame compress well together.
Layout in README.md. Used by the recipes' preparations and samples.
"""

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import lz4.block
import numpy as np
import numpy.typing as npt

from lead_trainer.data.record import CorruptRecord

_LENGTH = struct.Struct("<I")
ALLOWED_TYPES = frozenset({"|u1", "|i1", "<u2", "<i2", "<i4", "<i8", "<f2", "<f4", "<f8"})
MAX_BLOCK_BYTES = 1 << 28
MAX_DIMENSIONS = 8


def pack_arrays(arrays: Mapping[str, npt.NDArray[Any]], *, compress: bool) -> bytes:
    """Returns the arrays as one block; equal arrays give equal bytes in any order."""
    table, parts = [], []
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        if array.dtype.str not in ALLOWED_TYPES:
            raise ValueError(f"array {name} has type {array.dtype}, which a record cannot hold")
        table.append([name, array.dtype.str, list(array.shape)])
        parts.append(array.tobytes())
    head = json.dumps(table, separators=(",", ":")).encode()
    plain = _LENGTH.pack(len(head)) + head + b"".join(parts)
    if not compress:
        return plain
    return bytes(lz4.block.compress(plain, mode="high_compression", compression=4, store_size=True))


def unpack_arrays(block: bytes | memoryview, *, compressed: bool) -> dict[str, npt.NDArray[Any]]:
    """Returns read-only views of the arrays in a block; raises CorruptRecord where sizes do not fit."""
    try:
        plain = memoryview(_decompress(block) if compressed else block).cast("B")
        (length,) = _LENGTH.unpack_from(plain)
        table = json.loads(bytes(plain[_LENGTH.size : _LENGTH.size + length]))
        return _views(plain, _LENGTH.size + length, table)
    except (ValueError, TypeError, RecursionError, struct.error, lz4.block.LZ4BlockError) as error:
        raise CorruptRecord(f"array block cannot be read: {error}") from error


def _decompress(block: bytes | memoryview) -> bytes:
    (size,) = _LENGTH.unpack_from(block)
    if size > MAX_BLOCK_BYTES:
        raise ValueError(f"block claims {size} bytes, at most {MAX_BLOCK_BYTES} are allowed")
    return bytes(lz4.block.decompress(block))


def _views(plain: memoryview, position: int, table: Any) -> dict[str, npt.NDArray[Any]]:
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, kind, shape in table:
        if kind not in ALLOWED_TYPES or len(shape) > MAX_DIMENSIONS or any(side < 0 for side in shape):
            raise ValueError(f"array {name} has type {kind!r} and shape {shape}")
        dtype, count = np.dtype(kind), math.prod(shape)
        end = position + count * dtype.itemsize
        if end > len(plain):
            raise ValueError(f"array {name} reaches to byte {end} of {len(plain)}")
        view = np.frombuffer(plain[position:end], dtype).reshape(shape)
        view.flags.writeable = False
        arrays[str(name)] = view
        position = end
    return arrays
