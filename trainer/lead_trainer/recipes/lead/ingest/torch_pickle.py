"""NavSim's feature files, gzip pickles of torch tensors and numpy arrays, read without running any of their code.

Tensors inside them carry torch's own storage format, one file in the other: five pickles and the numbers. It is read
here as well, by the same interpreter; torch is not asked.
"""

import gzip
import io
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from lead_trainer.errors import BadData
from lead_trainer.recipes.lead.ingest.pickle_machine import run
from lead_trainer.recipes.lead.ingest.plain_values import Budget, Name, Names, Refused
from lead_trainer.recipes.lead.ingest.stored_arrays import PLAIN, check_values, elements

MAX_PLAIN_BYTES = 256 * 1024 * 1024
_SAVED = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19." + b"\x80\x02M\xe9\x03."  # torch's magic number, version 1001
_COUNT_BYTES = 8

_STORAGES = {
    "BoolStorage": "|b1", "ByteStorage": "|u1", "CharStorage": "|i1", "ShortStorage": "<i2", "IntStorage": "<i4",
    "LongStorage": "<i8", "HalfStorage": "<f2", "FloatStorage": "<f4", "DoubleStorage": "<f8",
    "ComplexFloatStorage": "<c8", "ComplexDoubleStorage": "<c16",
}  # fmt: skip
_STORAGE_NAMES: Names = {("torch", name): Name(f"torch.{name}") for name in _STORAGES}
_TYPES = {name.text.removeprefix("torch."): np.dtype(_STORAGES[of]) for (_, of), name in _STORAGE_NAMES.items()}


class _Storage:
    """The numbers that tensors are views of; it is no value, so a stream can only hand it to a tensor."""

    def __init__(self, flat: npt.NDArray[Any]) -> None:
        self.flat = flat


def _storage(arguments: tuple[Any, ...], budget: Budget) -> _Storage:
    """Reads torch's older file format with one storage in it."""
    if len(arguments) != 1 or type(arguments[0]) is not bytes or not arguments[0].startswith(_SAVED):
        raise Refused("a tensor's storage is not in torch's format of single storages")
    data = arguments[0]
    system, at = run(data, {}, budget, begin=len(_SAVED))
    if type(system) is not dict or system.get("little_endian") is not True:
        raise Refused("a tensor's storage is not little-endian")
    found = list[tuple[str, str, int]]()

    def described(identity: Any) -> None:
        found.append(_description(identity))

    _, at = run(data, _STORAGE_NAMES, budget, begin=at, persistent=described)
    keys, at = run(data, {}, budget, begin=at)
    if len(found) != 1 or keys != [found[0][1]]:
        raise Refused("a tensor's storage is not one storage")
    kind, _, count = found[0]
    begin = at + _COUNT_BYTES
    stored = int.from_bytes(data[at:begin], "little")
    size = count * _TYPES[kind].itemsize
    if stored != count or len(data) != begin + size:
        raise Refused(f"a {kind} of {count} has {len(data) - begin} bytes")
    budget.take(size)
    flat = np.frombuffer(data[begin:], _TYPES[kind])
    check_values(flat)
    return _Storage(flat)


def _description(identity: Any) -> tuple[str, str, int]:
    """Returns type, key and count of ("storage", type, key, where it was, count[, view])."""
    if type(identity) is not tuple or len(identity) not in {5, 6} or type(identity[1]) is not Name:
        raise Refused("it refers to an object outside of the file")
    kind, key, count = identity[1].text.removeprefix("torch."), identity[2], identity[4]
    if identity[0] != "storage" or type(key) is not str or type(count) is not int or count < 0:
        raise Refused("a tensor's storage has a strange description")
    if len(identity) == 6 and identity[5] is not None:
        raise Refused("a tensor's storage is a view of another")
    return kind, key, count


def _tensor(arguments: tuple[Any, ...], budget: Budget) -> npt.NDArray[Any]:
    """Returns a tensor as an array; raises Refused unless every element lies in its storage."""
    if len(arguments) not in {6, 7} or type(arguments[0]) is not _Storage:
        raise Refused("a tensor is not made of a storage, offset, size and strides")
    flat, (offset, shape, strides) = arguments[0].flat, arguments[1:4]
    count = elements(shape)
    whole = type(strides) is tuple and all(type(step) is int and step >= 0 for step in (offset, *strides))
    if not whole or len(strides) != len(shape):
        raise Refused("a tensor has strange strides")
    if not count:
        return np.empty(shape, flat.dtype)
    last = offset + sum((axis - 1) * step for axis, step in zip(shape, strides, strict=True))
    if last >= len(flat):
        raise Refused(f"a tensor of shape {shape} does not lie in its storage of {len(flat)}")
    budget.take(count * flat.itemsize)
    steps = tuple(step * flat.itemsize for step in strides)
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, steps, writeable=False).copy(order="K")


_NAMES: Names = {
    **PLAIN,
    ("torch._utils", "_rebuild_tensor_v2"): Name("torch._utils._rebuild_tensor_v2", _tensor),
    ("torch.storage", "_load_from_bytes"): Name("torch.storage._load_from_bytes", _storage),
}


def read_gzip_pickle(data: bytes, path: str) -> Any:
    """Returns the value in a gzip pickle, tensors as arrays; raises BadData naming `path` for any other content."""
    try:
        return tensor_value(decompress(data))
    except (ValueError, OSError, EOFError, MemoryError) as error:
        raise BadData(f"file {path} is not a valid gzip pickle of tensors and plain data: {error}") from error


def tensor_value(stream: bytes) -> Any:
    """Returns the value of a pickle stream, tensors as arrays; raises ValueError for anything else."""
    return run(stream, _NAMES, Budget(2 * MAX_PLAIN_BYTES))[0]


def decompress(data: bytes) -> bytes:
    """Returns the decompressed stream; raises ValueError beyond MAX_PLAIN_BYTES, an OSError or EOFError if damaged."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            plain = stream.read(MAX_PLAIN_BYTES + 1)
    except zlib.error as error:
        raise OSError(f"it is damaged: {error}") from error
    if len(plain) > MAX_PLAIN_BYTES:
        raise ValueError(f"it holds more than {MAX_PLAIN_BYTES} bytes")
    return plain
