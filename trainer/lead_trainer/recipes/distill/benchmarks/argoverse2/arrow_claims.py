"""What the messages of an Arrow stream would unpack to, read before anything is unpacked.

pyarrow reports a batch's size once it has it, and a compressed buffer of some bytes may become gigabytes. The size is
in the message: a flatbuffer (Message.fbs and Schema.fbs of apache/arrow) locates the buffers, and a compressed buffer
begins with the bytes that it becomes, to which pyarrow holds it.
"""

import struct
from collections.abc import Iterator

import pyarrow as pa

_I16, _I32, _I64 = struct.Struct("<H"), struct.Struct("<i"), struct.Struct("<q")
_BUFFER = struct.Struct("<qq")  # place in the body, bytes
_HEADER, _DICTIONARY_DATA, _BUFFERS, _COMPRESSION = 2, 1, 2, 3  # fields, counted from zero


def unpacked_bytes(stream: pa.Buffer) -> Iterator[int]:
    """Yields, message by message, the bytes that its buffers unpack to.

    Raises pa.ArrowException, OSError, ValueError or struct.error for what is no stream of Arrow.
    """
    messages = pa.ipc.MessageReader.open_stream(pa.BufferReader(stream))
    for message in messages:
        if message.type in ("record batch", "dictionary"):
            yield _unpacked(message)


def _unpacked(message: pa.ipc.Message) -> int:
    data, body = memoryview(message.metadata), memoryview(message.body)
    batch = _follow(data, _field(data, _follow(data, 0), _HEADER))
    if message.type == "dictionary":
        batch = _follow(data, _field(data, batch, _DICTIONARY_DATA))
    compressed, at = _field(data, batch, _COMPRESSION), _field(data, batch, _BUFFERS)
    if not at:
        return 0
    vector = _follow(data, at)
    (count,) = _I32.unpack_from(data, vector)
    total = 0
    for number in range(count):
        place, size = _BUFFER.unpack_from(data, vector + _I32.size + number * _BUFFER.size)
        claimed = _I64.unpack_from(body, place)[0] if compressed and size else -1
        if size < 0 or place < 0 or claimed < -1:
            raise ValueError(f"it has a buffer of {min(size, claimed)} bytes")
        total += size if claimed == -1 else claimed
    return total


def _follow(data: memoryview, at: int) -> int:
    return at + int(_I32.unpack_from(data, at)[0])


def _field(data: memoryview, table: int, number: int) -> int:
    """Returns where a table's field is, 0 where the table has none."""
    places = table - int(_I32.unpack_from(data, table)[0])
    (size,) = _I16.unpack_from(data, places)
    slot = 4 + 2 * number
    offset = int(_I16.unpack_from(data, places + slot)[0]) if slot < size else 0
    return table + offset if offset else 0
