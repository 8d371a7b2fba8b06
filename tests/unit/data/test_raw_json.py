"""Tables of gigabytes are read row by row; what is no such table is refused as by the whole-document reader."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead_trainer.data.raw_json import raw_json, raw_json_rows

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(rows=st.lists(VALUES, max_size=5), indent=st.sampled_from([None, 0, 2]))
def test_rows_are_those_of_the_whole_document(rows: list[object], indent: int | None) -> None:
    assert list(raw_json_rows(json.dumps(rows, indent=indent).encode())) == rows


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[1", b"[1,", b"[1 2]", b"[1]x", b"[1,]", b"\xff", b"[" * 100_000, b"[" + b"[" * 100_000]
)
def test_what_is_no_list_is_refused_like_any_other_document(data: bytes) -> None:
    with pytest.raises(ValueError):
        list(raw_json_rows(data))
    if data != b"{}":
        with pytest.raises(ValueError):
            raw_json(data)
