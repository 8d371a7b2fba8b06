"""The small tables of a cache as columns in memory: rows of a collection, verdicts, ego metas.

`build` writes them as parquet, `cache_reader` reads them once a process; the recipes' samples index them.
"""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lead_trainer.contract.raw_data import Collection, RouteVerdict, SampleKey
from lead_trainer.data.row_texts import RowTexts
from lead_trainer.data.small_ints import SmallInts, small
from lead_trainer.data.stored_manifest import REBUILD
from lead_trainer.errors import BadData

COMPRESSION = "zstd"
ROUTE_COLUMN = "route_folder"  # of the metas; the recipe owns every other name but `frame`
_MIXTURE = b"lead.mixture"
_NAMES = b"lead.buckets"
_COUNTERS = b"lead.counters"

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CollectionRows:
    """One collection, bucket after bucket; every array has one entry a row, in the type that its values need."""

    name: str
    bucket_names: tuple[str, ...]
    mixture: tuple[float, ...]
    counters: Mapping[str, int]
    bucket: SmallInts
    route: RowTexts
    frame: SmallInts
    sample: SmallInts  # number of the sample in the cache

    def position(self, row: int) -> int:
        """Returns which row of its bucket a row is, from 0."""
        return row - int(np.searchsorted(self.bucket, self.bucket[row]))


@dataclass(frozen=True)
class RowPlaces:
    """Where the records of a collection's rows lie, by the number of their sample."""

    sample: Int64
    shard: Int64
    slot: Int64  # position in the shard


@dataclass(frozen=True)
class Placement:
    """Where each sample's record lies: shard and position in it."""

    shard: Int64
    slot: Int64
    shards: int


def collection_table(collection: Collection, samples: Sequence[SampleKey], placement: Placement) -> pa.Table:
    """Returns the rows of a collection in LEAD's order."""
    numbers = np.concatenate([bucket.samples for bucket in collection.buckets]).astype(np.int64)
    sizes = [len(bucket.samples) for bucket in collection.buckets]
    table = pa.table(
        {
            "bucket": np.repeat(np.arange(len(sizes), dtype=np.int64), sizes),
            "route": pa.array([samples[n].route for n in numbers], pa.string()).dictionary_encode(),
            "frame": np.array([samples[n].frame for n in numbers], np.int64),
            "sample": numbers,
            "shard": placement.shard[numbers],
            "slot": placement.slot[numbers],
        }
    )
    return table.replace_schema_metadata(
        {
            _NAMES: json.dumps([bucket.name for bucket in collection.buckets]),
            _MIXTURE: json.dumps(list(collection.mixture)),
            _COUNTERS: json.dumps(dict(collection.counters), sort_keys=True),
        }
    )


def collection_rows(name: str, data: bytes) -> tuple[CollectionRows, RowPlaces]:
    """Reads a collection's rows back, and where their records lie; raises BadData when the table is not one."""
    table = read_table(data, f"collection {name}")
    with _naming(f"collection {name}"):
        metadata = table.schema.metadata or {}
        bucket = _ints(table, "bucket")
        if (np.diff(bucket) < 0).any():
            raise BadData(f"collection {name} of the cache does not hold bucket after bucket; {REBUILD}")
        places = RowPlaces(_ints(table, "sample"), _ints(table, "shard"), _ints(table, "slot"))
        rows = CollectionRows(
            name=name,
            bucket_names=tuple(json.loads(metadata[_NAMES])),
            mixture=tuple(json.loads(metadata[_MIXTURE])),
            counters=json.loads(metadata[_COUNTERS]),
            bucket=small(bucket),
            route=RowTexts.of(table.column("route")),
            frame=small(_ints(table, "frame")),
            sample=small(places.sample),
        )
        return rows, places


def verdict_table(verdicts: Sequence[RouteVerdict]) -> pa.Table:
    """Returns the per-route verdicts, one row a route."""
    return pa.table(
        {
            "route": pa.array([v.route for v in verdicts], pa.string()),
            "kept": pa.array([v.kept for v in verdicts], pa.bool_()),
            "reason": pa.array([v.reason for v in verdicts], pa.string()),
            "frames": pa.array([v.frames for v in verdicts], pa.int64()),
        }
    )


def write_table(table: pa.Table) -> bytes:
    """Returns a table as parquet; equal tables give equal bytes with one pyarrow."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression=COMPRESSION)
    return sink.getvalue()


def read_table(data: bytes, what: str) -> pa.Table:
    """Returns the table in a parquet file; raises BadData naming `what`."""
    with _naming(what):
        return pq.read_table(io.BytesIO(data))


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Raises BadData naming `what` where its bytes, columns or texts are not those of such a table."""
    try:
        yield
    except (pa.ArrowException, OSError, LookupError, ValueError, TypeError, RecursionError) as error:
        raise BadData(f"{what} of the cache cannot be read: {error}; {REBUILD}") from error


class MetaColumns:
    """Metas of every frame by column, read where the table lies; a row is found by route and frame."""

    def __init__(self, table: pa.Table) -> None:
        """Takes a table with ROUTE_COLUMN, `frame` and the recipe's columns; a route's rows lie together, in order.

        Raises BadData where the table is another.
        """
        with _naming("metas"):
            routes = _one_chunk(table.column(ROUTE_COLUMN))
            names = routes if pa.types.is_dictionary(routes.type) else routes.dictionary_encode()
            code = names.indices.to_numpy()
            starts = np.flatnonzero(np.diff(code, prepend=-1))
            ends = np.append(starts[1:], len(code))
            texts = names.dictionary.to_pylist()
            self._span = {texts[code[at]]: (int(at), int(end)) for at, end in zip(starts, ends, strict=True)}
            self._frame = _one_chunk(table.column("frame")).to_numpy()
            columns = [name for name in table.column_names if name not in (ROUTE_COLUMN, "frame")]
            self._arrays = {name: _column(_one_chunk(table.column(name))) for name in columns}

    def row(self, route: str, frame: int) -> dict[str, Any]:
        """Returns the columns of one frame; lists come as arrays, missing values as None."""
        start, end = self._span.get(route, (0, 0))
        number = start + int(np.searchsorted(self._frame[start:end], frame))
        if number >= end or self._frame[number] != frame:
            raise BadData(f"the cache holds no metas of {route} frame {frame}; build it again")
        return {name: array(number) for name, array in self._arrays.items()}

    def values(self, name: str, route: str) -> list[Any]:
        """Returns one column of a route's frames, in order; raises BadData where there is no such column."""
        if name not in self._arrays:
            raise BadData(f"the cache's metas have no column {name}; build it again")
        start, end = self._span.get(route, (0, 0))
        return [self._arrays[name](number) for number in range(start, end)]


def joined_metas(tables: Sequence[pa.Table]) -> pa.Table:
    """Returns the metas of all parts as one table of one chunk a column, route after route, frames in order."""
    table = pa.concat_tables(tables).sort_by([(ROUTE_COLUMN, "ascending"), ("frame", "ascending")])
    return pa.table({name: _one_chunk(table.column(name)) for name in table.column_names})


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        return pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array


def _column(array: pa.Array) -> Any:
    """Returns a function from row number to value, without a copy where the layout allows it."""
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    if pa.types.is_list(array.type):
        starts, values = array.offsets.to_numpy(), array.values.to_numpy()
        return lambda row: values[starts[row] : starts[row + 1]] if valid is None or valid[row] else None
    if pa.types.is_floating(array.type) or pa.types.is_integer(array.type) or pa.types.is_boolean(array.type):
        filled = array.fill_null(False if pa.types.is_boolean(array.type) else 0) if array.null_count else array
        plain = filled.to_numpy(zero_copy_only=False)
        return lambda row: plain[row].item() if valid is None or valid[row] else None
    return lambda row: array[row].as_py()


def _ints(table: pa.Table, name: str) -> Int64:
    column = table.column(name)
    if not pa.types.is_integer(column.type) or column.null_count:
        raise ValueError(
            f"column {name} is of {column.type} with {column.null_count} empty rows, expected whole numbers"
        )
    return np.asarray(column.to_numpy(), np.int64)
