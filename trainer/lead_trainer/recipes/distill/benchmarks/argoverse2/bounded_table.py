"""Columns of somebody else's Parquet or Feather file, whatever the file would unpack to.

A table of equal values packs ten thousand to one, and a text that many rows share is stored once, so rows, bytes and
the lengths of texts are bounded one by one before columns are made of them. A scenario has some 2,500 rows, the
annotations of a log some 11,000.
"""

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lead_trainer.recipes.distill.benchmarks.argoverse2.arrow_claims import unpacked_bytes
from lead_trainer.recipes.distill.benchmarks.argoverse2.parquet_claims import claimed_page_bytes

MAX_ROWS, MAX_BYTES, MAX_TEXT = 200_000, 64 << 20, 128
MAX_STATES = 2_000_000  # tracks times steps; a log has some 100,000
_BATCH_ROWS = 16_384
_MAGIC = b"ARROW1\0\0"  # of a Feather file, version 2; a stream of Arrow follows, then an index that is not read


class OverLimit(ValueError):
    """A file exceeds the limits of a data set's files; the text names the quantity, its value, and the limit."""


def parquet_columns(data: bytes, names: Sequence[str]) -> dict[str, pa.ChunkedArray]:
    """Returns columns of numbers and text; raises OverLimit, ValueError, pa.ArrowException or OSError."""
    metadata = pq.read_metadata(pa.BufferReader(data))
    _refuse_more("rows", metadata.num_rows, MAX_ROWS)
    _refuse_more(
        "bytes", sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)), MAX_BYTES
    )
    leaves = {metadata.schema.column(number).path for number in range(metadata.num_columns)}
    _refuse_lacking(names, leaves)
    _refuse_large_pages(data, metadata, names)
    file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=list(names))  # a text that many rows share stays one
    batches = file.iter_batches(_BATCH_ROWS, columns=list(names), use_threads=False)
    return columns_of(batches, names)


def feather_columns(data: bytes, names: Sequence[str]) -> dict[str, pa.ChunkedArray]:
    """Returns columns of numbers and text; raises as `parquet_columns`, and struct.error."""
    if data[: len(_MAGIC)] != _MAGIC:
        raise ValueError("it does not begin as a Feather file of version 2")
    stream = pa.py_buffer(data).slice(len(_MAGIC))
    total = 0
    for size in unpacked_bytes(stream):
        total += size
        _refuse_more("bytes", total, MAX_BYTES)
    schema = pa.ipc.open_stream(stream).schema
    _refuse_lacking(names, set(schema.names))
    options = pa.ipc.IpcReadOptions(included_fields=[schema.names.index(name) for name in names], use_threads=False)
    return columns_of(pa.ipc.open_stream(stream, options=options), names)


def refuse_many_states(tracks: int, steps: int) -> None:
    """Raises OverLimit where an array of tracks times steps would be larger than any data set's."""
    _refuse_more("states (tracks times steps)", tracks * steps, MAX_STATES)


def columns_of(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> dict[str, pa.ChunkedArray]:
    """Returns the columns of batches, counted one by one; raises OverLimit, ValueError or pa.ArrowException."""
    kept, rows, size = [], 0, 0
    for batch in batches:
        rows, size = rows + batch.num_rows, size + batch.nbytes
        _refuse_more("rows", rows, MAX_ROWS)
        _refuse_more("bytes", size, MAX_BYTES)
        batch.validate(full=True)
        kept.append({name: _plain(name, batch.column(name)) for name in names})
    if not rows:
        raise ValueError("it has no rows")
    return {name: pa.chunked_array([batch[name] for batch in kept]) for name in names}


def _plain(name: str, column: pa.Array) -> pa.Array:
    """Returns numbers as they are and text as pa.string()."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return column
    texts = column.dictionary if pa.types.is_dictionary(kind) else column
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        raise ValueError(f"its column {name} has type {kind}, expected numbers or text")
    _refuse_more(f"bytes in a text of column {name}", pc.max(pc.binary_length(texts)).as_py() or 0, MAX_TEXT)
    return column.cast(pa.string())


def _refuse_large_pages(data: bytes, metadata: pq.FileMetaData, names: Sequence[str]) -> None:
    total = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            for size in claimed_page_bytes(data, chunk) if chunk.path_in_schema in names else ():
                total += size
                _refuse_more("bytes in its pages", total, MAX_BYTES)


def _refuse_lacking(names: Sequence[str], found: set[str]) -> None:
    lacking = sorted(set(names) - found)
    if lacking:
        raise ValueError(f"it lacks the columns {', '.join(lacking)}")


def _refuse_more(what: str, found: int, limit: int) -> None:
    if found > limit:
        raise OverLimit(f"it has {found} {what}, expected at most {limit}")
