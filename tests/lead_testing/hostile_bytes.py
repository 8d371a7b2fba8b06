"""Seeded hostile inputs for every parser of the data path: noise, flips, cuts, hostile numbers, right checksums.

What a parser may do with them is to return, or to raise the errors it documents. Called with some thousands by
tests/unit/data/test_hostile_bytes.py, with millions by tests/campaign/data_goals.py.
"""

import functools
import gc
import json
import random
import struct
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from pydantic import ValidationError

from lead_protocol.manifests import CacheManifest
from lead_protocol.store import s3_answers
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import StoreError
from lead_testing.data_faults import build_test_cache
from lead_testing.hostile_raw_files import raw_file_parsers
from lead_testing.parsers import Parser
from lead_trainer.data.array_block import pack_arrays, unpack_arrays
from lead_trainer.data.build_parts import PartRecord
from lead_trainer.data.cache_tables import MetaColumns, collection_rows, read_table
from lead_trainer.data.record import CorruptRecord, decode_record, encode_record
from lead_trainer.data.shard import HEAD, TRAILER_BYTES, ShardReader
from lead_trainer.errors import BadData

LONGEST_S = 1.0  # of CPU: longer is a hang
NUMBERS = (0, 1, 7, 8, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
TEXTS = (b"-1", b"0", b"1e999", b"NaN", b"null", b"[]", b"{}", b'""', b"9" * 40, b"true", b'"\\ud800"', b"[" * 3000,
         b"<a>", b"&#0;", b"&x;", b"\xff\xfe", b"../../x")  # fmt: skip


def try_inputs(name: str, seeds: range) -> list[str]:
    """Gives a parser the input of each seed; returns what went wrong, with the seed that draws it again."""
    parser, wrong = parsers()[name], []
    for seed in seeds:
        data, begin = hostile_input(parser, random.Random(f"{name} {seed}")), time.thread_time()
        try:
            with suppress(*parser.raises):
                parser.parse(data)
        except Exception as error:
            wrong.append(f"{name} seed {seed}: {type(error).__name__}: {error}"[:500])
        if time.thread_time() - begin > LONGEST_S and (took_s := _alone_s(parser, data)) > LONGEST_S:
            wrong.append(f"{name} seed {seed}: took {took_s:.1f} s")
    return wrong


def _alone_s(parser: Parser, data: bytes) -> float:
    """Returns the seconds of CPU that an input takes by itself: a garbage collection in it is of the whole process."""
    collects = gc.isenabled()
    gc.disable()
    try:
        begin = time.thread_time()
        with suppress(Exception):  # what it raises was judged before
            parser.parse(data)
        return time.thread_time() - begin
    finally:
        if collects:
            gc.enable()


def hostile_input(parser: Parser, noise: random.Random) -> bytes:
    """Returns a spoiled input: most are sound ones with a few changes, half of these with right checksums."""
    if parser.draw is not None and noise.random() < 0.9:
        return parser.draw(noise)
    if noise.random() < 0.1:
        return noise.randbytes(noise.randrange(300))
    data = bytearray(noise.choice(parser.sound))
    for _ in range(noise.choice((1, 1, 2, 5))):
        _spoil(data, noise)
    return parser.signed(bytes(data)) if noise.random() < 0.5 else bytes(data)


def _spoil(data: bytearray, noise: random.Random) -> None:
    place, kind = noise.randrange(len(data) + 1), noise.randrange(6)
    if kind == 0 and place < len(data):
        data[place] ^= 1 << noise.randrange(8)
    elif kind == 1:
        del data[place:]
    elif kind == 2:
        del data[place : place + noise.randrange(1, 20)]
    elif kind == 3:
        data[place:place] = noise.choice(TEXTS) if noise.random() < 0.5 else noise.randbytes(noise.randrange(1, 20))
    elif kind == 4:
        field = noise.choice((1, 2, 4, 8))
        place -= place % field if noise.random() < 0.8 else 0
        data[place : place + field] = (noise.choice(NUMBERS) % 2 ** (8 * field)).to_bytes(field, "little")
    else:
        data[place : place + noise.randrange(1, 12)] = noise.choice(TEXTS)


@functools.cache
def parsers() -> dict[str, Parser]:
    """Returns every parser by name, with sound inputs of a cache that was built for this."""
    objects = _objects()
    manifest = next(data for key, data in objects.items() if key.endswith("MANIFEST.json"))
    of_part = next(data for key, data in objects.items() if "/index/" in key)
    bucket = next(data for key, data in objects.items() if "/buckets/" in key)
    metas = next(data for key, data in objects.items() if "/metas/" in key)
    arrays: dict[str, Any] = {"a": np.arange(12, dtype=np.uint8).reshape(3, 4), "b": np.ones((2, 0, 3), np.float32)}
    records = (encode_record(7, {"x": b"abc" * 9, "label": b"12345678"}), encode_record(0, {}))
    corrupt, table, answer = (CorruptRecord,), (BadData,), (StoreError, s3_answers.TryAgain, s3_answers.UploadGone)
    return {
        "record": Parser(records, _read_record, corrupt, _signed_record),
        "array block": Parser((pack_arrays(arrays, compress=False),), _plain_block, corrupt),
        "array block, compressed": Parser((pack_arrays(arrays, compress=True),), _packed_block, corrupt),
        "shard": Parser((_small_shard(),), _read_shard, corrupt, _signed_shard),
        "manifest": Parser((manifest,), CacheManifest.model_validate_json, (ValidationError,)),
        "part record": Parser((of_part,), PartRecord.model_validate_json, (ValidationError,)),
        "bucket table": Parser((bucket,), _read_rows, table),
        "metas table": Parser((metas,), _read_metas, table),
        "answer: list": Parser((LIST_PAGE,), lambda data: s3_answers.parse_list_page(data, where="LIST"), answer),
        "answer: upload": Parser((UPLOAD,), lambda data: s3_answers.parse_upload_id(data, where="POST"), answer),
        "answer: completion": Parser((DONE, ERROR), lambda d: s3_answers.check_completion(d, where="POST"), answer),
        "answer: error": Parser((ERROR,), _read_error, answer),
        **raw_file_parsers(),
    }


LIST_PAGE = (
    b'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    b"<EncodingType>url</EncodingType><Contents><Key>a%2Fb</Key><Size>12</Size><ETag>&#34;x&#34;</ETag></Contents>"
    b"<IsTruncated>false</IsTruncated></ListBucketResult>"
)
UPLOAD = b"<InitiateMultipartUploadResult><UploadId>abc</UploadId></InitiateMultipartUploadResult>"
DONE = b"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"
ERROR = b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code><Message>later</Message></Error>'


def _objects() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory(prefix="lead-hostile-") as folder:
        store = FolderStore(Path(folder))
        build_test_cache(store, publish=False)
        return {info.key: store.get(info.key, max_bytes=1 << 20) for info in store.list("builds/")}


def _read_record(data: bytes) -> None:
    fields = decode_record(data).fields.values()
    assert all(len(view) <= len(data) for view in fields), "a field is longer than its record"


def _signed_record(data: bytes) -> bytes:
    """The length and the checksum are those of what is there."""
    if len(data) < 32:
        return data
    body = data[:16] + struct.pack("<I", len(data)) + data[20:-8]
    return body + struct.pack("<Q", xxhash.xxh3_64_intdigest(body))


def _plain_block(data: bytes) -> None:
    _held(unpack_arrays(data, compressed=False), len(data))


def _packed_block(data: bytes) -> None:
    _held(unpack_arrays(data, compressed=True), int.from_bytes(data[:4], "little"))


def _held(arrays: dict[str, Any], size: int) -> None:
    assert sum(array.nbytes for array in arrays.values()) <= size, "arrays hold more bytes than their block"


def _small_shard() -> bytes:
    records = [encode_record(number, {"x": b"abcdefgh"}) for number in range(2)]
    rows, body = b"", HEAD
    for number, record in enumerate(records):
        rows += struct.pack("<QQQQ", number, len(body), len(record), xxhash.xxh3_64_intdigest(record))
        body += record
    return body + rows + struct.pack("<QQQ8s", len(records), len(body), xxhash.xxh3_64_intdigest(rows), b"LDSHEND1")


def _signed_shard(data: bytes) -> bytes:
    """The footer's checksum is that of what lies where the trailer says."""
    if len(data) < TRAILER_BYTES:
        return data
    count, offset, _, magic = struct.unpack("<QQQ8s", data[-TRAILER_BYTES:])
    footer = data[offset:-TRAILER_BYTES] if offset < len(data) else b""
    trailer = struct.pack("<QQQ8s", count, offset, xxhash.xxh3_64_intdigest(footer), magic)
    return data[:-TRAILER_BYTES] + trailer


def _read_shard(data: bytes) -> None:
    def read(offset: int, length: int) -> bytes:
        assert offset + length <= len(data), f"{length} bytes at {offset} of {len(data)} were asked for"
        return data[offset : offset + length]

    reader = ShardReader(read, len(data))
    for slot in range(len(reader) + 1):
        try:
            reader.record(slot)
        except CorruptRecord:
            continue


def _read_rows(data: bytes) -> None:
    rows, _ = collection_rows("all", data)
    json.dumps([rows.bucket_names, rows.mixture, rows.counters, list(rows.route)])


def _read_metas(data: bytes) -> None:
    MetaColumns(read_table(data, "metas"))


def _read_error(data: bytes) -> None:
    raise s3_answers.explain_failure(400, {}, data, where="GET")
