"""What each opcode of plain data does to the stack and the memo of a stream; those of every second byte are in
`pickle_machine.py`.

A handler begins behind its opcode and returns where the next one is. It takes from the stack no more than what the
stream pushed since the last mark: Python raises IndexError beyond that, which ends the stream.
"""

import struct
from collections.abc import Callable
from typing import Any

from lead_trainer.recipes.lead.ingest.plain_values import (
    Budget,
    Name,
    Names,
    Refused,
    Unfinished,
    check_keys,
    exactly,
    named,
    shown,
)

MEMOIZE = 0x94
MAX_INT_BYTES = 8
_LONGEST_NAME = 200
DOUBLE, INT, _UNSIGNED, _LENGTH = (struct.Struct(code).unpack_from for code in (">d", "<i", "<I", "<Q"))

Persistent = Callable[[Any], Any]


class Machine:
    """A stream while it is read."""

    __slots__ = ("above", "budget", "data", "memo", "names", "persistent", "stack")

    def __init__(self, data: bytes, names: Names, budget: Budget, persistent: Persistent) -> None:
        self.data, self.names, self.budget, self.persistent = data, names, budget, persistent
        self.stack: list[Any] = []
        self.above: list[list[Any]] = []  # the stacks below each mark
        self.memo: list[Any] = []

    def since_mark(self) -> list[Any]:
        """Returns what was pushed since the last mark, and makes the stack below it the stack."""
        items, self.stack = self.stack, self.above.pop()
        return items


Handler = Callable[[Machine, int], int]


def _new(kind: Callable[[], Any]) -> Handler:
    def push(machine: Machine, at: int) -> int:
        machine.stack.append(kind())
        return at

    return push


def _two_bytes(machine: Machine, at: int) -> int:
    machine.stack.append(machine.data[at] | machine.data[at + 1] << 8)
    return at + 2


def _long(machine: Machine, at: int) -> int:
    size = machine.data[at]
    if size > MAX_INT_BYTES:
        raise Refused(f"it holds an integer of {size} bytes")
    end = at + 1 + size
    machine.stack.append(int.from_bytes(machine.data[at + 1 : end], "little", signed=True))
    return end


def _sized(width: int, make: Callable[[bytes], Any]) -> Handler:
    """A value whose length comes first, in `width` bytes."""

    def push(machine: Machine, at: int) -> int:
        begin = at + width
        end = begin + int.from_bytes(machine.data[at:begin], "little")
        if end > len(machine.data):
            raise IndexError
        machine.stack.append(make(machine.data[begin:end]))
        return end

    return push


def _text(data: bytes) -> str:
    return data.decode()


def _append(machine: Machine, at: int) -> int:
    item = machine.stack.pop()
    exactly(machine.stack[-1], list).append(item)
    return at


def _set_items(machine: Machine, at: int) -> int:
    items, machine.stack = machine.stack, machine.above.pop()
    keys = items[::2]
    if len(items) % 2:
        raise Refused("it has a key without a value")
    check_keys(keys)
    exactly(machine.stack[-1], dict).update(zip(keys, items[1::2], strict=True))
    return at


def _set_item(machine: Machine, at: int) -> int:
    item, key = machine.stack.pop(), machine.stack.pop()
    check_keys([key])
    exactly(machine.stack[-1], dict)[key] = item
    return at


def _add_items(machine: Machine, at: int) -> int:
    items = machine.since_mark()
    check_keys(items)
    exactly(machine.stack[-1], set).update(items)
    return at


def _frozenset(machine: Machine, at: int) -> int:
    items = machine.since_mark()
    check_keys(items)
    machine.stack.append(frozenset(items))
    return at


def _tuple_of(count: int) -> Handler:
    def push(machine: Machine, at: int) -> int:
        stack = machine.stack
        if len(stack) < count:
            raise IndexError
        stack[-count:] = [tuple(stack[-count:])]
        return at

    return push


def _get(machine: Machine, at: int) -> int:
    machine.stack.append(machine.memo[_UNSIGNED(machine.data, at)[0]])
    return at + 4


def _put(width: int) -> Handler:
    def remember(machine: Machine, at: int) -> int:
        place = int.from_bytes(machine.data[at : at + width], "little")
        if place != len(machine.memo):  # a pickler numbers them in order
            raise Refused(f"it remembers an object as number {place}, after {len(machine.memo)}")
        machine.memo.append(machine.stack[-1])
        return at + width

    return remember


def _frame(machine: Machine, at: int) -> int:
    (length,) = _LENGTH(machine.data, at)
    if length > len(machine.data) - at - 8:
        raise IndexError
    return at + 8


def _global(machine: Machine, at: int) -> int:
    data = machine.data
    line = data.find(b"\n", at, at + _LONGEST_NAME)
    end = data.find(b"\n", line + 1, line + _LONGEST_NAME)
    if line < at or end < at:
        raise Refused("it has a name without an end")
    machine.stack.append(named(machine.names, _text(data[at:line]), _text(data[line + 1 : end])))
    return end + 1


def _stack_global(machine: Machine, at: int) -> int:
    of, module = machine.stack.pop(), machine.stack.pop()
    machine.stack.append(named(machine.names, exactly(module, str), exactly(of, str)))
    return at


def _reduce(machine: Machine, at: int) -> int:
    arguments, name = machine.stack.pop(), machine.stack.pop()
    if type(name) is not Name or name.call is None:
        raise Refused(f"it calls {shown(name)}, which is no constructor of plain data")
    made = name.call(exactly(arguments, tuple), machine.budget)
    if isinstance(made, Unfinished):
        made.memo_at = len(machine.memo)
    machine.stack.append(made)
    return at


def _build(machine: Machine, at: int) -> int:
    state, target, memo = machine.stack.pop(), machine.stack[-1], machine.memo
    if not isinstance(target, Unfinished):
        raise Refused(f"it gives a state to {shown(target)}")
    machine.stack[-1] = value = target.finish(state, machine.budget)
    if target.memo_at < len(memo) and memo[target.memo_at] is target:
        memo[target.memo_at] = value
    return at


def _persistent(machine: Machine, at: int) -> int:
    machine.stack.append(machine.persistent(machine.stack.pop()))
    return at


def _unknown(machine: Machine, at: int) -> int:
    raise Refused(f"it uses the opcode {machine.data[at - 1]:#04x}, which plain data has not")


CONSTANTS = {0x4E: None, 0x88: True, 0x89: False, 0x29: ()}
_KNOWN: dict[int, Handler] = {
    0x7D: _new(dict),
    0x8F: _new(set),
    0x4D: _two_bytes,  # BININT2
    0x8A: _long,  # LONG1
    0x43: _sized(1, bytes),  # SHORT_BINBYTES
    0x42: _sized(4, bytes),  # BINBYTES
    0x8E: _sized(8, bytes),  # BINBYTES8
    0x96: _sized(8, bytearray),  # BYTEARRAY8
    0x8C: _sized(1, _text),  # SHORT_BINUNICODE
    0x58: _sized(4, _text),  # BINUNICODE
    0x8D: _sized(8, _text),  # BINUNICODE8
    0x61: _append,
    0x73: _set_item,
    0x75: _set_items,
    0x90: _add_items,
    0x91: _frozenset,
    0x85: _tuple_of(1),
    0x86: _tuple_of(2),
    0x87: _tuple_of(3),
    0x6A: _get,  # LONG_BINGET
    0x71: _put(1),  # BINPUT
    0x72: _put(4),  # LONG_BINPUT
    0x95: _frame,
    0x63: _global,
    0x93: _stack_global,
    0x52: _reduce,
    0x81: _reduce,  # NEWOBJ: of a name, both are a call
    0x62: _build,
    0x51: _persistent,  # BINPERSID
}
HANDLERS = [_KNOWN.get(op, _unknown) for op in range(256)]
