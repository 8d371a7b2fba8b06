"""Pickle streams of protocols 2 to 5 as plain data, read by an interpreter of our own: no `pickle`, no constructor of
anybody's, no attribute is ever looked up for a stream.

It knows the opcodes that Python's pickler writes for plain data. A name in a stream is looked up in a table of `Name`s,
small stand-ins that check their arguments and copy bytes; what a stream may do to them is to call them, and to give a
state to what they return. Memory and time are bounded by the stream's length and by the limits below, and so is the
value: containers that hold themselves, and containers that are shared until a walk over them never ends, are refused.
"""

import struct
from collections.abc import Callable, Mapping
from itertools import chain
from types import NoneType
from typing import Any

import numpy as np

MAX_OPS = 1_000_000  # of one stream; a file of LEAD's has some thousand
MAX_ITEMS = 1_000_000  # of a value, each counted as often as a walk over it meets it
MAX_DEPTH = 64  # containers in containers; LEAD's files have five
MAX_INT_BYTES = 8
_TEXT_SHOWN = 80
_LONGEST_NAME = 200

_KEYS = frozenset({NoneType, bool, int, float, str, bytes})  # what cannot make hashing or comparing slow
_CONTAINERS = frozenset({list, dict, tuple, set, frozenset})
_SCALARS = frozenset(
    {*_KEYS, bytearray, complex, np.ndarray, np.str_, np.bytes_, *(np.dtype(code).type for code in "?bhilqBHILQefdFD")}
)


class Refused(ValueError):
    """What a stream holds is no plain data."""


class Budget:
    """What a file may cost, with the streams inside of it: what it shares cannot multiply beyond this."""

    def __init__(self, limit: int) -> None:
        self._limit, self._left = limit, limit
        self.ops, self.items = MAX_OPS, MAX_ITEMS

    def take(self, size: int) -> None:
        """Raises Refused when the values hold more bytes than the limit."""
        self._left -= size
        if self._left < 0:
            raise Refused(f"its values hold more than {self._limit} bytes")


class Unfinished:
    """What a stream may give a state, once: `finish` checks it and returns the value, or the object itself."""

    __slots__ = ("memo_at",)
    memo_at: int  # where the stream remembers this object, if it does so at once

    def finish(self, state: Any, budget: Budget) -> Any:
        """Returns what stands for the object from now on; raises Refused for any other state than the known one."""
        raise NotImplementedError


class Name:
    """A name that a stream may use, and what a call of it returns; without `call` it may only be an argument."""

    __slots__ = ("call", "text")

    def __init__(self, text: str, call: Callable[[tuple[Any, ...], Budget], Any] | None = None) -> None:
        self.text, self.call = text, call


Names = Mapping[tuple[str, str], Name]
Persistent = Callable[[Any], Any]


def no_persistent_id(_: Any) -> Any:
    """Refuses references to what lies outside of the stream."""
    raise Refused("it refers to an object outside of the file")


def run(
    data: bytes, names: Names, budget: Budget, *, begin: int = 0, persistent: Persistent = no_persistent_id
) -> tuple[Any, int]:
    """Returns the value of the stream at `begin` and where it ends; raises Refused for all that is no plain data.

    The value is a tree of None, bool, int, float, complex, str, bytes, bytearray, numpy arrays and scalars in lists,
    tuples, dicts, sets and frozensets, no deeper than MAX_DEPTH; keys are plain scalars.
    """
    try:
        value, end = _interpret(data, names, budget, begin, persistent)
    except (IndexError, struct.error):
        raise Refused("it ends early, or uses more than it holds") from None
    _check_value(value, budget)
    return value, end


def _interpret(data: bytes, names: Names, budget: Budget, at: int, persistent: Persistent) -> tuple[Any, int]:
    size = len(data)
    stack: list[Any] = []
    above: list[list[Any]] = []  # the stacks below each mark
    memo: list[Any] = []
    if data[at : at + 1] != b"\x80" or not 2 <= data[at + 1] <= 5:
        raise Refused("it is no pickle of protocol 2 to 5")
    at += 2
    for done in range(budget.ops):
        op = data[at]
        at += 1
        if op == 0x8C:  # SHORT_BINUNICODE
            end = at + 1 + data[at]
            text = str(data[at + 1 : end], "utf-8")
            stack.append(text)
            at = end
            if data[at] == 0x94:  # MEMOIZE, as it nearly always is
                memo.append(text)
                at += 1
        elif op == 0x94:  # MEMOIZE
            memo.append(stack[-1])
        elif op == 0x68:  # BINGET
            stack.append(memo[data[at]])
            at += 1
        elif op == 0x4B:  # BININT1
            stack.append(data[at])
            at += 1
        elif op == 0x5D:  # EMPTY_LIST
            if data.startswith(_FLOATS, at) and (row := _floats(data, at)):
                memo.append(row)
                stack.append(row)
                at += 3 + 9 * len(row)
            else:
                stack.append([])
        elif op == 0x47:  # BINFLOAT
            stack.append(_DOUBLE.unpack_from(data, at)[0])
            at += 8
        elif op == 0x28:  # MARK
            above.append(stack)
            stack = []
        elif op == 0x65:  # APPENDS
            items, stack = stack, above.pop()
            _exactly(stack[-1], list).extend(items)
        elif op == 0x75:  # SETITEMS
            items, stack = stack, above.pop()
            keys = items[::2]
            if len(items) % 2:
                raise Refused("it has a key without a value")
            _check_keys(keys)
            _exactly(stack[-1], dict).update(zip(keys, items[1::2], strict=True))
        elif op == 0x4A:  # BININT
            stack.append(_INT.unpack_from(data, at)[0])
            at += 4
        elif op in _CONSTANTS:
            stack.append(_CONSTANTS[op])
        elif op == 0x7D:  # EMPTY_DICT
            stack.append({})
        elif op == 0x61:  # APPEND
            item = stack.pop()
            _exactly(stack[-1], list).append(item)
        elif op == 0x52:  # REDUCE
            arguments, name = stack.pop(), stack.pop()
            if type(name) is not Name or name.call is None:
                raise Refused(f"it calls {_shown(name)}, which is no constructor of plain data")
            made = name.call(_exactly(arguments, tuple), budget)
            if isinstance(made, Unfinished):
                made.memo_at = len(memo)
            stack.append(made)
        elif op == 0x74:  # TUPLE
            items, stack = stack, above.pop()
            stack.append(tuple(items))
        elif op in _TUPLES:
            count = _TUPLES[op]
            if len(stack) < count:
                raise IndexError
            stack[-count:] = [tuple(stack[-count:])]
        elif op == 0x62:  # BUILD
            state, target = stack.pop(), stack[-1]
            if not isinstance(target, Unfinished):
                raise Refused(f"it gives a state to {_shown(target)}")
            stack[-1] = value = target.finish(state, budget)
            if target.memo_at < len(memo) and memo[target.memo_at] is target:
                memo[target.memo_at] = value
        elif op == 0x4D:  # BININT2
            stack.append(data[at] | data[at + 1] << 8)
            at += 2
        elif op == 0x93:  # STACK_GLOBAL
            of, module = stack.pop(), stack.pop()
            stack.append(_named(names, _exactly(module, str), _exactly(of, str)))
        elif op == 0x63:  # GLOBAL
            line = data.find(b"\n", at, at + _LONGEST_NAME)
            end = data.find(b"\n", line + 1, line + _LONGEST_NAME)
            if line < at or end < at:
                raise Refused("it has a name without an end")
            stack.append(_named(names, str(data[at:line], "utf-8"), str(data[line + 1 : end], "utf-8")))
            at = end + 1
        elif op in _SIZED:
            width, make = _SIZED[op]
            begin = at + width
            at = begin + int.from_bytes(data[at:begin], "little")
            if at > size:
                raise IndexError
            stack.append(make(data[begin:at]))
        elif op == 0x6A:  # LONG_BINGET
            stack.append(memo[_UNSIGNED.unpack_from(data, at)[0]])
            at += 4
        elif op in {0x71, 0x72}:  # BINPUT, LONG_BINPUT
            width = 1 if op == 0x71 else 4
            place = int.from_bytes(data[at : at + width], "little")
            at += width
            if place != len(memo):  # a pickler numbers them in order
                raise Refused(f"it remembers an object as number {place}, after {len(memo)}")
            memo.append(stack[-1])
        elif op == 0x73:  # SETITEM
            item, key = stack.pop(), stack.pop()
            _check_keys([key])
            _exactly(stack[-1], dict)[key] = item
        elif op == 0x8A:  # LONG1
            end = at + 1 + data[at]
            if data[at] > MAX_INT_BYTES:
                raise Refused(f"it holds an integer of {data[at]} bytes")
            stack.append(int.from_bytes(data[at + 1 : end], "little", signed=True))
            at = end
        elif op == 0x95:  # FRAME
            (length,) = _LENGTH.unpack_from(data, at)
            at += 8
            if length > size - at:
                raise IndexError
        elif op == 0x8F:  # EMPTY_SET
            stack.append(set())
        elif op == 0x90:  # ADDITEMS
            items, stack = stack, above.pop()
            _check_keys(items)
            _exactly(stack[-1], set).update(items)
        elif op == 0x91:  # FROZENSET
            items, stack = stack, above.pop()
            _check_keys(items)
            stack.append(frozenset(items))
        elif op == 0x51:  # BINPERSID
            stack.append(persistent(stack.pop()))
        elif op == 0x2E:  # STOP
            if len(stack) != 1 or above:
                raise Refused("it ends with more or less than one value")
            budget.ops -= done
            return stack[0], at
        else:
            raise Refused(f"it uses the opcode {op:#04x}, which plain data has not")
    raise Refused(f"it has more than {MAX_OPS} instructions")


def keys_of(items: Any) -> list[Any]:
    """Returns the members of a set's list; raises Refused when it is no list, or a member is no plain scalar."""
    _check_keys(_exactly(items, list))
    return list(items)


def _check_value(value: Any, budget: Budget) -> None:
    """Walks level by level, so that a container that holds itself is too deep, and one that is shared too large."""
    level = [] if type(value) in _SCALARS else [value]
    for _ in range(MAX_DEPTH):
        if not level:
            return
        for kind in set(map(type, level)) - _CONTAINERS:
            strange = next(item for item in level if type(item) is kind)
            raise Refused(f"it holds {_shown(strange)} where a value belongs")
        budget.items -= len(level) + sum(map(len, level))
        if budget.items < 0:
            raise Refused(f"it holds more than {MAX_ITEMS} values, counted as often as they are met")
        inside = chain.from_iterable([item.values() if type(item) is dict else item for item in level])
        level = [item for item in inside if type(item) not in _SCALARS]
    if level:
        raise Refused(f"its containers are nested more than {MAX_DEPTH} deep")


def _check_keys(keys: list[Any]) -> None:
    for kind in set(map(type, keys)) - _KEYS:
        raise Refused(f"a key or a set's member is a {kind.__name__}")


def _exactly(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise Refused(f"it uses {_shown(value)} as a {kind.__name__}")
    return value


def _named(names: Names, module: str, name: str) -> Name:
    found = names.get((module, name))
    if found is None:
        raise Refused(f"it names {f'{module}.{name}'[:_TEXT_SHOWN]!r}, which is no plain data")
    return found


def _shown(value: Any) -> str:
    return value.text if type(value) is Name else f"a {type(value).__name__}"


def _floats(data: bytes, at: int) -> list[float]:
    """Returns the list of three or four floats whose instructions begin with `_FLOATS` at a place, else an empty one.

    Points and rows of matrices are most of what LEAD's files hold; one instruction at a time would take twice as long.
    """
    if data[at + 29 : at + 30] == b"e" and data[at + 11] == data[at + 20] == 0x47:
        return list(_THREE.unpack_from(data, at))
    if data[at + 38 : at + 39] == b"e" and data[at + 11] == data[at + 20] == data[at + 29] == 0x47:
        return list(_FOUR.unpack_from(data, at))
    return []


_FLOATS = b"\x94(G"  # MEMOIZE, MARK, BINFLOAT
_THREE, _FOUR = (struct.Struct(">xx" + "xd" * count) for count in (3, 4))
_DOUBLE, _INT, _UNSIGNED, _LENGTH = (struct.Struct(code) for code in (">d", "<i", "<I", "<Q"))
_CONSTANTS = {0x4E: None, 0x88: True, 0x89: False, 0x29: ()}
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}


def _text(data: bytes) -> str:
    return str(data, "utf-8")


_SIZED: dict[int, tuple[int, Callable[[bytes], Any]]] = {  # how many bytes of length come first
    0x43: (1, bytes),  # SHORT_BINBYTES
    0x42: (4, bytes),  # BINBYTES
    0x8E: (8, bytes),  # BINBYTES8
    0x96: (8, bytearray),  # BYTEARRAY8
    0x58: (4, _text),  # BINUNICODE
    0x8D: (8, _text),  # BINUNICODE8
}
