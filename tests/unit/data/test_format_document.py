"""The document of the format is right: the reader printed in it reads what we write, and refuses what is damaged."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lead_trainer.data
from lead_trainer.data.array_block import pack_arrays
from lead_trainer.data.record import encode_record
from lead_trainer.data.shard import write_shard

DOCUMENT = Path(lead_trainer.data.__file__).with_name("README.md")


@pytest.fixture(scope="module")
def reader() -> dict[str, Any]:
    """The names that the document's program defines."""
    (program,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)
    assert "lead_" not in program and len(program.splitlines()) <= 150
    names: dict[str, Any] = {}
    exec(compile(program, str(DOCUMENT), "exec"), names)
    return names


@pytest.fixture
def shard(tmp_path: Path) -> tuple[bytes, dict[int, dict[str, np.ndarray]]]:
    """A shard of three samples with a picture, compressed planes and plain arrays, and the arrays in it."""
    noise = np.random.default_rng(3)
    arrays = {
        sample: {
            "depth": noise.integers(0, 9, (6, 8), np.uint8),
            "boxes": noise.normal(size=(sample % 3, 9)).astype(np.float32),
            "ids": noise.integers(-5, 5, 4).astype(np.int64),
        }
        for sample in (7, 2**40, 0)
    }
    records = [
        (
            sample,
            encode_record(
                sample,
                {
                    "image": b"\xff\xd8" + bytes([sample % 251]) * (sample % 13),
                    "planes": pack_arrays(found, compress=True),
                    "arrays": pack_arrays(found, compress=False),
                },
            ),
        )
        for sample, found in arrays.items()
    ]
    write_shard(tmp_path / "shard", records)
    return (tmp_path / "shard").read_bytes(), arrays


def test_the_documents_reader_reads_every_byte(reader: dict[str, Any], shard: Any) -> None:
    data, arrays = shard
    found = dict(reader["samples"](data))
    assert list(found) == list(arrays)
    for sample, fields in found.items():
        assert fields["image"] == b"\xff\xd8" + bytes([sample % 251]) * (sample % 13)
        for name, compressed in (("planes", True), ("arrays", False)):
            for key, (kind, shape, raw) in reader["block_arrays"](fields[name], compressed).items():
                np.testing.assert_array_equal(np.frombuffer(raw, kind).reshape(shape), arrays[sample][key])


def test_the_documents_reader_takes_no_damaged_shard(reader: dict[str, Any], shard: Any) -> None:
    data, _ = shard
    for place in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        with pytest.raises(ValueError):
            list(reader["samples"](bytes(damaged)))
    for size in range(0, len(data), 11):
        with pytest.raises(ValueError):
            list(reader["samples"](data[:size]))
