"""Raw files are read without running their code, within limits, and a bad one is named."""

import io
import lzma
import pickle
from typing import Any

import numpy as np
import pytest

from lead_trainer.errors import BadData
from lead_trainer.recipes.lead.ingest import plain_pickle
from lead_trainer.recipes.lead.ingest.frame_files import decode_lidar, decode_picture, decode_plane, decode_radar
from lead_trainer.recipes.lead.ingest.plain_pickle import read_plain


def packed(value: Any, protocol: int = 4) -> bytes:
    return lzma.compress(pickle.dumps(value, protocol=protocol))


class Command:
    def __reduce__(self) -> Any:
        return (print, ("this must never run",))


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_plain_values_and_numpy_arrays_come_back(protocol: int) -> None:
    value = {"a": [1, 2.5, None, "x", True], "b": np.arange(6, dtype=np.float16).reshape(2, 3), "c": np.float64(2.0)}
    found = read_plain(packed(value, protocol), "m.pkl")
    assert found["a"] == value["a"] and found["c"] == 2.0
    np.testing.assert_array_equal(found["b"], value["b"])
    assert found["b"].dtype == np.float16


@pytest.mark.parametrize(
    "value",
    [Command(), {"x": [Command()]}, io.BytesIO, np.random.default_rng],
    ids=["an object", "an object inside", "a class", "a function"],
)
def test_anything_but_plain_data_is_refused_with_the_files_name(value: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadData, match=r"m\.pkl"):
        read_plain(packed(value), "m.pkl")
    assert capsys.readouterr().out == ""


def test_a_stream_that_grows_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_pickle, "MAX_PLAIN_BYTES", 1000)
    with pytest.raises(BadData, match="more than 1000 bytes"):
        read_plain(packed(b"0" * 100_000), "m.pkl")


@pytest.mark.parametrize("keep", [0, 1, 10, -20, -1])
def test_a_truncated_pickle_is_named(keep: int) -> None:
    with pytest.raises(BadData, match=r"bboxes/0003\.pkl"):
        read_plain(packed({"a": list(range(1000))})[:keep], "bboxes/0003.pkl")


def test_damaged_sensor_files_are_named() -> None:
    for decode in (decode_picture, decode_plane, decode_lidar):
        for data in (b"", b"nonsense"):
            with pytest.raises(BadData, match="file rgb/0001"):
                decode(data, "rgb/0001")
    with pytest.raises(BadData, match="file radar/0001"):
        decode_radar(b"PK nonsense", "radar/0001", 4)


def test_a_radar_file_with_a_missing_sensor_is_named() -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, radar1=np.zeros((3, 4), np.float16))
    with pytest.raises(BadData, match="file radar/0001"):
        decode_radar(buffer.getvalue(), "radar/0001", 4)
