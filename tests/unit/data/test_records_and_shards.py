"""Records and shards survive a round trip, and no damage to their bytes is ever taken for data."""

import struct
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from lead_trainer.data.array_block import pack_arrays, unpack_arrays
from lead_trainer.data.record import CorruptRecord, decode_record, encode_record
from lead_trainer.data.shard import ShardReader, write_shard

NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
FIELDS = st.dictionaries(NAMES, st.binary(max_size=200), max_size=8)


@given(st.integers(0, 2**64 - 1), FIELDS)
def test_a_record_gives_back_every_field(sample_id: int, fields: dict[str, bytes]) -> None:
    record = decode_record(encode_record(sample_id, fields))
    assert record.sample_id == sample_id
    assert {name: bytes(view) for name, view in record.fields.items()} == fields


@given(FIELDS, st.data())
def test_a_changed_byte_is_always_found(fields: dict[str, bytes], data: st.DataObject) -> None:
    encoded = bytearray(encode_record(1, fields))
    place = data.draw(st.integers(0, len(encoded) - 1))
    encoded[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptRecord):
        decode_record(bytes(encoded))


@given(FIELDS, st.integers(0, 400))
def test_a_cut_record_is_always_found(fields: dict[str, bytes], keep: int) -> None:
    encoded = encode_record(1, fields)
    with pytest.raises(CorruptRecord):
        decode_record(encoded[: min(keep, len(encoded) - 1)])


@settings(max_examples=200)
@given(st.binary(max_size=300), st.integers(0, 8))
def test_hostile_lengths_never_read_past_the_record(noise: bytes, count: int) -> None:
    body = struct.pack("<4sHHQI4x", b"LDR1", 1, count, 7, 24 + len(noise) + 8) + noise
    hostile = body + struct.pack("<Q", xxhash.xxh3_64_intdigest(body))
    try:
        fields = decode_record(hostile).fields
    except CorruptRecord:
        return
    assert all(bytes(view) in body for view in fields.values())


@given(st.binary(max_size=200))
def test_hostile_array_blocks_raise_and_nothing_else(noise: bytes) -> None:
    for compressed in (False, True):
        try:
            unpack_arrays(noise, compressed=compressed)
        except CorruptRecord:
            continue


@pytest.mark.parametrize("compress", [False, True])
def test_arrays_keep_type_shape_and_values(compress: bool) -> None:
    arrays: dict[str, np.ndarray] = {
        "a": np.arange(12, dtype=np.uint8).reshape(3, 4),
        "b": np.array([[1.5], [np.inf]], np.float16),
        "empty": np.zeros((0, 4), np.float32),
    }
    found = unpack_arrays(pack_arrays(arrays, compress=compress), compressed=compress)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
        assert not found[name].flags.writeable


def test_arrays_of_objects_are_refused() -> None:
    with pytest.raises(ValueError, match="object"):
        pack_arrays({"x": np.array([{}], dtype=object)}, compress=False)


@pytest.mark.parametrize(
    "table", [b"[" * 100_000, b"{" * 9, b'[["x","|u1",[' + b"9" * 30 + b"]]]", b'[["x","|u1"]]', b"7"]
)
def test_a_hostile_table_of_arrays_is_told(table: bytes) -> None:
    with pytest.raises(CorruptRecord, match="array block cannot be read"):
        unpack_arrays(struct.pack("<I", len(table)) + table, compressed=False)


def shard_in_memory(data: bytes) -> ShardReader:
    return ShardReader(lambda offset, length: data[offset : offset + length], len(data))


def test_a_shard_gives_back_every_record_and_is_deterministic(tmp_path: Path) -> None:
    records = [(number, encode_record(number, {"x": bytes([number] * number)})) for number in (5, 1, 9)]
    first, second = write_shard(tmp_path / "a", records), write_shard(tmp_path / "b", iter(records))
    assert first == second
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    reader = shard_in_memory((tmp_path / "a").read_bytes())
    assert [reader.record(slot).sample_id for slot in range(len(reader))] == [5, 1, 9]


def test_every_cut_and_every_flipped_byte_of_a_shard_is_found(tmp_path: Path) -> None:
    write_shard(tmp_path / "a", [(number, encode_record(number, {"x": b"abcdefgh"})) for number in range(2)])
    whole = (tmp_path / "a").read_bytes()

    def read(data: bytes) -> None:
        reader = shard_in_memory(data)
        for slot in range(len(reader)):
            reader.record(slot)

    read(whole)
    for size in range(len(whole)):
        with pytest.raises(CorruptRecord):
            read(whole[:size])
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        with pytest.raises(CorruptRecord):
            read(bytes(damaged))
