"""Plain values, numpy arrays and objects of classes that are not here as a pickle stream, for other programs to load.

The counterpart of `pickle_machine.py`: it writes the opcodes itself, so no class has to be imported for its name, and
numpy's names are those that numpy 1 and numpy 2 both know.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

_RECONSTRUCT = b"cnumpy.core.multiarray\n_reconstruct\n"
_EMPTY = b"cnumpy\nndarray\n" + b"K\x00\x85" + b"C\x01b" + b"\x87"  # of what class, shape and type it begins


@dataclass(frozen=True)
class LeadObject:
    """An object of a class of LEAD's, made without a call of its constructor."""

    module: str
    name: str
    state: dict[str, Any]


def pickled(value: Any) -> Iterator[bytes]:
    """Yields a stream of protocol 4 in pieces; raises TypeError for a value of another type."""
    yield b"\x80\x04"
    yield from _value(value)
    yield b"."


def _value(value: Any) -> Iterator[bytes]:
    match value:
        case bool():
            yield b"\x88" if value else b"\x89"
        case int():
            yield b"\x8a\x08" + struct.pack("<q", value)
        case str():
            data = value.encode()
            yield b"X" + struct.pack("<I", len(data)) + data
        case bytes():
            yield b"\x8e" + struct.pack("<Q", len(value))
            yield value
        case dict():
            yield b"}("
            for key, held in value.items():
                yield from _value(key)
                yield from _value(held)
            yield b"u"
        case list():
            yield b"]("
            for held in value:
                yield from _value(held)
            yield b"e"
        case np.ndarray():
            yield from _array(value)
        case LeadObject():
            yield f"c{value.module}\n{value.name}\n".encode() + b")\x81"
            yield from _value(value.state)
            yield b"b"
        case _:
            raise TypeError(f"a {type(value).__name__} is not written")


def _array(array: npt.NDArray[Any]) -> Iterator[bytes]:
    """Writes the output of numpy's `__reduce__`: an empty array, then version, shape, type, order and bytes."""
    yield _RECONSTRUCT + _EMPTY + b"R"
    yield b"(K\x01("
    for size in array.shape:
        yield from _value(size)
    yield b"t"
    kind = array.dtype.str[1:]
    yield b"cnumpy\ndtype\n"
    yield from _value(kind)
    yield b"\x89\x88\x87R"
    width = array.dtype.itemsize if array.dtype.kind == "S" else -1
    order, alignment = (b"|", 1) if array.dtype.kind == "S" else (b"<", -1)
    yield b"(K\x03X\x01\x00\x00\x00" + order + b"NNN"
    for number in (width, alignment, 0):
        yield from _value(number)
    yield b"tb\x89"
    yield from _value(array.tobytes())
    yield b"tb"
