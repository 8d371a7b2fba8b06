"""LEAD's xz pickles, read without running any of their code: numpy arrays, numpy scalars and plain containers only.

Used by the build pod for `metas/*.pkl` and `bboxes/*.pkl`, and with one name more for LEAD's persistent cache. A
stream that names anything else, or grows beyond the size limit, is refused. Nothing here imports `pickle`; see
`pickle_machine.py`.
"""

import lzma
from typing import Any

from lead_trainer.errors import BadData
from lead_trainer.recipes.lead.ingest.pickle_machine import run
from lead_trainer.recipes.lead.ingest.plain_values import Budget, Names
from lead_trainer.recipes.lead.ingest.stored_arrays import PLAIN

MAX_PLAIN_BYTES = 64 * 1024 * 1024
MAX_DICTIONARY_BYTES = 128 * 1024 * 1024  # of memory for the decoder; xz's largest preset takes 65 MiB


def read_plain(data: bytes, path: str, names: Names = PLAIN) -> Any:
    """Returns the value in an xz pickle; raises BadData naming `path` when it is truncated, too large or not plain."""
    try:
        return plain_value(decompress(data), names)
    except (ValueError, EOFError, lzma.LZMAError, MemoryError) as error:
        raise BadData(f"file {path} is not a valid xz pickle of plain data: {error}") from error


def plain_value(stream: bytes, names: Names = PLAIN) -> Any:
    """Returns the value of a pickle stream; raises ValueError for all that is no plain data."""
    return run(stream, names, Budget(MAX_PLAIN_BYTES))[0]


def decompress(data: bytes) -> bytes:
    """Returns the decompressed stream; raises ValueError beyond MAX_PLAIN_BYTES and EOFError when it is truncated."""
    decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_DICTIONARY_BYTES)
    plain = decoder.decompress(data, MAX_PLAIN_BYTES + 1)
    if len(plain) > MAX_PLAIN_BYTES:
        raise ValueError(f"it holds more than {MAX_PLAIN_BYTES} bytes")
    if not decoder.eof:
        raise EOFError(f"it ends early, after {len(data)} bytes")
    return plain
