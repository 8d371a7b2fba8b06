"""What numpy's names in a pickle stand for: checks of kind, byte order, shape and length, and a copy of the bytes.

numpy's own `dtype`, `_reconstruct` and `scalar` trust a stream: a type of objects makes pointers of its bytes. So
nothing of numpy is called here but `frombuffer` and `empty`, with a type made of a checked kind and size.
"""

import re
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lead_trainer.recipes.lead.ingest.plain_values import Budget, Name, Names, Refused, Unfinished, keys_of

MAX_AXES = 8
MAX_EMPTY_AXIS = 65_536  # of an array without elements: no bytes bound its other axes
Array = npt.NDArray[Any]

_NUMBER = re.compile(r"b1|[iu][1248]|f[248]|c(8|16)")
_TEXT = re.compile(r"[SU]([1-9][0-9]{0,4})")
_STATE_VERSION, _STATE_LENGTH = 3, 8  # of a type without fields: version, order, subarray, names, fields, sizes, flags
_ARRAY_VERSION = 1
_CHECKED = "bU"  # kinds of which not all bytes are values
_ORDERS: dict[str, Literal["C", "F"]] = {"C": "C", "F": "F"}
_LAST_CODE_POINT, _SURROGATES = 0x10FFFF, (0xD800, 0xDFFF)


class StoredType(Unfinished):
    """A type of numbers or text; its byte order comes with its state."""

    __slots__ = ("_code", "_type")

    def __init__(self, code: str) -> None:
        self._code = code
        self._type: np.dtype[Any] | None = None

    def finish(self, state: Any, budget: Budget) -> "StoredType":
        """Takes the byte order; raises Refused for objects, fields, subarrays and sizes that are not the name's."""
        plain = (
            type(state) is tuple
            and len(state) == _STATE_LENGTH
            and type(state[0]) is int
            and state[0] == _STATE_VERSION
            and type(state[1]) is str
            and state[1] in {"<", ">", "|", "="}
            and all(part is None for part in state[2:5])
        )
        if not plain or self._type is not None:
            raise Refused(f"its type {self._code} has fields, a subarray or another strange state")
        made = np.dtype(state[1] + self._code)
        if type(state[5]) is not int or state[5] not in {-1, made.itemsize}:
            raise Refused(f"its type {self._code} has items of another size")
        self._type = made
        return self

    def numpy(self) -> np.dtype[Any]:
        """Returns the type; raises Refused when the stream has no byte order."""
        if self._type is None:
            raise Refused(f"its type {self._code} has no byte order")
        return self._type


class BlankArray(Unfinished):
    """An array to which the stream has yet to give its shape, its type and its bytes."""

    __slots__ = ()

    def finish(self, state: Any, budget: Budget) -> Array:
        """Returns the array; raises Refused for a state other than (1, shape, type, Fortran order, bytes)."""
        if type(state) is not tuple or len(state) != 5 or type(state[0]) is not int or state[0] != _ARRAY_VERSION:
            raise Refused("an array has a state of another version")
        _, shape, kind, fortran, content = state
        if type(fortran) is not bool:
            raise Refused("an array has no order")
        return array_of(content, kind, shape, "F" if fortran else "C", budget)


def array_of(content: Any, kind: Any, shape: Any, order: Any, budget: Budget) -> Array:
    """Returns a copy of `content` as an array; raises Refused unless it fits its type and shape to the byte."""
    if type(content) is not bytearray and type(content) is not bytes:
        raise Refused(f"the bytes of an array are a {type(content).__name__}")
    if type(order) is not str or order not in _ORDERS:
        raise Refused("an array has another order than C or F")
    if type(kind) is not StoredType:
        raise Refused(f"the type of an array is a {type(kind).__name__}")
    dtype, count, size = kind.numpy(), elements(shape), len(content)
    if count * dtype.itemsize != size:
        raise Refused(f"an array of {count} {dtype} has {size} bytes")
    budget.take(size)
    if not count:
        return np.empty(shape, dtype, _ORDERS[order])
    if dtype.kind in _CHECKED:
        check_values(np.frombuffer(content, dtype))
    return np.ndarray(shape, dtype, content, 0, None, _ORDERS[order]).copy("K")


def elements(shape: Any) -> int:
    """Returns how many elements a shape has; raises Refused unless it is a tuple of small sizes."""
    if type(shape) is not tuple or len(shape) > MAX_AXES:
        raise Refused("an array has a strange shape")
    count = 1
    for axis in shape:
        if type(axis) is not int or axis < 0:
            raise Refused("an array has a strange shape")
        count *= axis
    if not count and max(shape) > MAX_EMPTY_AXIS:
        raise Refused("an array without elements has a long axis")
    return count


def check_values(flat: Array) -> None:
    """Raises Refused for booleans other than 0 and 1, which numpy counts wrong, and for text that is no text."""
    if flat.dtype.kind == "b" and (flat.view(np.uint8) > 1).any():
        raise Refused("an array of booleans holds other bytes than 0 and 1")
    if flat.dtype.kind == "U":
        points = flat.view(flat.dtype.byteorder + "u4")
        if ((points > _LAST_CODE_POINT) | ((points >= _SURROGATES[0]) & (points <= _SURROGATES[1]))).any():
            raise Refused("an array of text holds what is no character")


def _reconstruct(arguments: tuple[Any, ...], budget: Budget) -> BlankArray:
    if len(arguments) != 3 or arguments[0] is not NDARRAY:
        raise Refused("it makes an array of another class than numpy's")
    return BlankArray()


def _from_buffer(arguments: tuple[Any, ...], budget: Budget) -> Array:
    if len(arguments) != 4:
        raise Refused("an array is not made of bytes, type, shape and order")
    return array_of(*arguments, budget)


def _scalar(arguments: tuple[Any, ...], budget: Budget) -> Any:
    if len(arguments) != 2:
        raise Refused("a scalar is not made of type and bytes")
    return array_of(arguments[1], arguments[0], (), "C", budget)[()]


def _type(arguments: tuple[Any, ...], budget: Budget) -> StoredType:
    code = arguments[0] if arguments else None
    if type(code) is not str or len(arguments) != 3 or not (_NUMBER.fullmatch(code) or _TEXT.fullmatch(code)):
        raise Refused("it holds an array of other than numbers, booleans or text")
    if any(type(flag) not in {bool, int} for flag in arguments[1:]) or arguments[1]:
        raise Refused(f"its type {code} is aligned or strange")
    return StoredType(code)


def _set(kind: type) -> Any:
    def make(arguments: tuple[Any, ...], budget: Budget) -> Any:
        if len(arguments) != 1:
            raise Refused(f"a {kind.__name__} is not made of one list")
        members = keys_of(arguments[0])
        budget.take(8 * len(members))
        return kind(members)

    return make


def _complex(arguments: tuple[Any, ...], budget: Budget) -> complex:
    if len(arguments) != 2 or any(type(part) is not float for part in arguments):
        raise Refused("a complex number is not made of two floats")
    return complex(*arguments)


def _bytes(arguments: tuple[Any, ...], budget: Budget) -> bytes:
    """Bytes that protocol 2 stored as text."""
    if len(arguments) != 2 or type(arguments[0]) is not str or arguments[1] != "latin1":
        raise Refused("bytes are not stored as text in latin1")
    budget.take(len(arguments[0]))
    return arguments[0].encode("latin1")


def _no_bytes(arguments: tuple[Any, ...], budget: Budget) -> bytes:
    if arguments:
        raise Refused("bytes are made of something")
    return b""


def _dict(arguments: tuple[Any, ...], budget: Budget) -> dict[Any, Any]:
    if arguments:
        raise Refused("an ordered dict is made of something")
    return {}


NDARRAY = Name("numpy.ndarray")
PLAIN: Names = {
    **{  # numpy 1 and numpy 2 name their internals differently
        (f"{core}.{module}", name): Name(f"{core}.{module}.{name}", call)
        for core in ("numpy.core", "numpy._core")
        for module, name, call in (
            ("multiarray", "_reconstruct", _reconstruct),
            ("multiarray", "scalar", _scalar),
            ("numeric", "_frombuffer", _from_buffer),
        )
    },
    **{  # Python 2's name is the one that protocol 2 writes
        (builtins, name): Name(f"builtins.{name}", call)
        for builtins in ("builtins", "__builtin__")
        for name, call in (
            ("set", _set(set)), ("frozenset", _set(frozenset)), ("complex", _complex), ("bytes", _no_bytes),
        )
    },
    ("numpy", "ndarray"): NDARRAY,
    ("numpy", "dtype"): Name("numpy.dtype", _type),
    ("collections", "OrderedDict"): Name("collections.OrderedDict", _dict),
    ("_codecs", "encode"): Name("_codecs.encode", _bytes),
}  # fmt: skip
