"""The parsers of raw datasets' files, for `hostile_bytes.py`: pickles by streams of opcodes, others by spoiled files.

What a pickle's parser returns is walked to its end, hashed and copied, as its users would.
"""

import gzip
import lzma
import pickle
from collections import OrderedDict
from typing import Any

import numpy as np
import torch

from lead_testing.caught_calls import without_calls
from lead_testing.hostile_pickles import hostile_stream
from lead_testing.parsers import Parser
from lead_trainer.errors import BadData
from lead_trainer.recipes.lead.ingest.plain_pickle import plain_value, read_plain
from lead_trainer.recipes.lead.ingest.torch_pickle import read_gzip_pickle, tensor_value

PLAIN_TYPES = (type(None), bool, int, float, complex, str, bytes, bytearray, np.generic, np.ndarray)


def raw_file_parsers() -> dict[str, Parser]:
    """Returns the parsers by name."""
    plain, tensors = _plain_streams(), _tensor_streams()
    refused = (ValueError, MemoryError)  # which the readers turn into BadData
    return {
        "pickle": Parser(
            plain, without_calls(lambda data: walked(plain_value(data))), refused,
            draw=lambda noise: hostile_stream(plain, noise), apart=True,
        ),
        "pickle of tensors": Parser(
            tensors, without_calls(lambda data: walked(tensor_value(data))), refused,
            draw=lambda noise: hostile_stream(tensors, noise), apart=True,
        ),
        "xz pickle": Parser(
            tuple(map(lzma.compress, plain[:3])), without_calls(lambda data: walked(read_plain(data, "m.pkl"))),
            (BadData,), apart=True,
        ),
        "gzip pickle": Parser(
            tuple(map(gzip.compress, tensors[:3])), without_calls(lambda data: walked(read_gzip_pickle(data, "t.gz"))),
            (BadData,), apart=True,
        ),
    }  # fmt: skip


def walked(value: Any) -> int:
    """Walks over a value as whoever uses it would; returns how many values it met."""
    if isinstance(value, dict):
        return 1 + sum(map(walked, value)) + sum(map(walked, value.values()))
    if isinstance(value, (list, tuple, set, frozenset)):
        return 1 + sum(map(walked, value))
    assert isinstance(value, PLAIN_TYPES), f"a value is a {type(value)}"
    if isinstance(value, (np.ndarray, np.generic)):
        assert value.dtype.kind in "biufcSU" and not value.dtype.hasobject, f"an array is of {value.dtype}"
        copied = np.array(value)
        assert len(copied.tobytes()) == value.nbytes
        if value.dtype.kind == "b":
            assert int(copied.sum()) == len(copied[copied]), "booleans are not 0 and 1"
        str(copied.ravel()[:5])
    else:
        hash(bytes(value) if isinstance(value, bytearray) else value)
        repr(value)
    return 1


def _plain_streams() -> tuple[bytes, ...]:
    values: list[Any] = [
        {"a": [1, -2, 3.5, None, "x", True], "of": {"b": [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]}, 7: (1, 2), None: b"raw"},
        {"b": np.arange(6, dtype=np.float16).reshape(2, 3), "c": np.float64(2.0), "t": np.array(["ab", "c"])},
        [np.arange(6).reshape(2, 3).T, np.array([True, False]), np.zeros((0, 3), "f4"), np.array(3, ">i2")],
        {"s": {1, 2}, "f": frozenset("ab"), "z": 1 + 2j, "o": OrderedDict(a=1), "e": b""},
        [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0], [1.0], np.bytes_(b"ab"), np.str_("é"), 2**62, -(2**40), 70_000],
    ]
    of_numpy_1 = [stream.replace(b"numpy._core", b"numpy.core") for stream in _written(values, (2, 4))]
    return (
        *_written(values, (2, 3, 4, 5)),
        pickle.dumps(bytearray(b"12"), 5),
        *(s for s in of_numpy_1 if b"\x8c" not in s),
    )


def _tensor_streams() -> tuple[bytes, ...]:
    whole = torch.arange(12.0).reshape(3, 4)
    values = [
        {"trajectory": whole, "turned": whole.t()[1:], "image": np.arange(5, dtype=np.uint8)},
        {"labels": torch.tensor([True, False]), "map": torch.zeros(2, 2, dtype=torch.int64), "none": torch.zeros(0, 2)},
    ]
    return tuple(_written(values, (2, 4, 5)))


def _written(values: list[Any], protocols: tuple[int, ...]) -> list[bytes]:
    return [pickle.dumps(value, protocol=protocol) for protocol in protocols for value in values]
