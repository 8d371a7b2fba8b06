"""A route is named once however many rows it has, and each row has the name it was written with."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lead_trainer.contract.raw_data import Bucket, Collection, SampleKey
from lead_trainer.data.cache_tables import Placement, collection_rows, collection_table, write_table
from lead_trainer.data.row_texts import RowTexts
from lead_trainer.errors import BadData

NAMES = ["b", "a", "b", "b", "c", "a", "d"]
COLUMNS = {
    "plain": pa.chunked_array([pa.array(NAMES)]),
    "a dictionary": pa.chunked_array([pa.array(NAMES).dictionary_encode()]),
    "dictionaries of their own": pa.chunked_array(
        [pa.array(NAMES[:4]).dictionary_encode(), pa.array(NAMES[4:]).dictionary_encode()]
    ),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_each_row_has_its_text_however_they_are_stored(kind: str) -> None:
    texts = RowTexts.of(COLUMNS[kind])
    assert list(texts) == NAMES == [texts[row] for row in range(len(texts))]
    assert sorted(texts.names) == ["a", "b", "c", "d"] == sorted(texts.used())
    chosen = texts[texts.isin(frozenset("ad"))]
    assert list(chosen) == ["a", "a", "d"] and sorted(chosen.used()) == ["a", "d"]
    none = texts[np.zeros(len(NAMES), bool)]
    assert (list(none), none.used(), len(none)) == ([], (), 0)


def test_a_collection_holds_each_route_once_in_any_number_of_row_groups() -> None:
    samples = [SampleKey(f"data/r{number // 50}", number % 50) for number in range(200)]
    collection = Collection("all", (Bucket("all", np.arange(200)[::-1]),), (1.0,))
    table = collection_table(collection, samples, Placement(np.zeros(200, np.int64), np.arange(200), 1))
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=60)
    for data in (write_table(table), sink.getvalue()):
        rows, _ = collection_rows("all", data)
        assert list(rows.route) == [key.route for key in reversed(samples)]
        assert len(rows.route.names) == 4 and rows.route.codes.nbytes == len(samples)


def test_a_collection_without_rows_has_no_routes() -> None:
    none = np.zeros(0, np.int64)
    empty = collection_table(Collection("all", (Bucket("all", none),), (1.0,)), [], Placement(none, none, 0))
    assert list(collection_rows("all", write_table(empty))[0].route) == []


def test_a_column_of_bytes_is_no_column_of_texts() -> None:
    with pytest.raises(ValueError, match="found a column of binary, expected texts"):
        RowTexts.of(pa.chunked_array([pa.array([b"a", b"\xff"])]))


@pytest.mark.parametrize("column", [pa.array([0.5, 1.0]), pa.array([0, None], pa.int64())], ids=["floats", "gaps"])
def test_a_column_that_holds_no_whole_numbers_is_named(column: pa.Array) -> None:
    two = np.zeros(2, np.int64)
    samples = [SampleKey("r", frame) for frame in (0, 1)]
    table = collection_table(Collection("all", (Bucket("all", np.arange(2)),), (1.0,)), samples, Placement(two, two, 1))
    broken = table.set_column(table.column_names.index("slot"), "slot", column)
    with pytest.raises(BadData, match=r"collection all .* column slot is of .*, expected whole numbers"):
        collection_rows("all", write_table(broken))
