"""Pickle streams of protocols 2 to 5 as plain data, read by an interpreter of our own: no `pickle`, no constructor of
anyone's, no attribute is ever looked up for a stream.

It knows the opcodes that Python's pickler writes for plain data. A name in a stream is looked up in a table of `Name`s,
small stand-ins that check their arguments and copy bytes; what a stream may do to them is to call them, and to give a
state to what they return. Memory and time are bounded by the stream's length and by the limits of `plain_values.py`,
and so is the value: containers that hold themselves, and containers that are shared until a walk over them never ends,
are refused.
"""

import struct
from typing import Any

from lead_trainer.recipes.lead.ingest.pickle_lists import filled
from lead_trainer.recipes.lead.ingest.pickle_opcodes import (
    CONSTANTS,
    DOUBLE,
    HANDLERS,
    INT,
    MEMOIZE,
    Machine,
    Persistent,
)
from lead_trainer.recipes.lead.ingest.plain_values import MAX_OPS, Budget, Names, Refused, check_value, exactly


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
        if data[begin : begin + 1] != b"\x80" or not 2 <= data[begin + 1] <= 5:
            raise Refused("it is no pickle of protocol 2 to 5")
        value, end = _interpret(Machine(data, names, budget, persistent), begin + 2)
    except (IndexError, struct.error):
        raise Refused("it ends early, or uses more than it holds") from None
    check_value(value, budget)
    return value, end


def _interpret(machine: Machine, at: int) -> tuple[Any, int]:
    """Runs the commonest opcodes here, with those that nearly always follow them, and the others by their handlers."""
    data, memo, stack, left = machine.data, machine.memo, machine.stack, machine.budget.ops
    while left > 0:
        left -= 1
        op = data[at]
        at += 1
        if op == 0x8C:  # SHORT_BINUNICODE
            end = at + 1 + data[at]
            text = data[at + 1 : end].decode()
            stack.append(text)
            at = end
            if data[at] == MEMOIZE:
                memo.append(text)
                at += 1
        elif op == 0x68:  # BINGET
            stack.append(memo[data[at]])
            at += 1
        elif op == 0x4B:  # BININT1
            stack.append(data[at])
            at += 1
        elif op == 0x5D:  # EMPTY_LIST
            items: list[Any] = []
            stack.append(items)
            if data[at] == MEMOIZE:
                memo.append(items)
                at = filled(items, memo, data, at + 1)
                left -= len(items)
        elif op == 0x47:  # BINFLOAT
            stack.append(DOUBLE(data, at)[0])
            at += 8
        elif op == 0x28:  # MARK
            machine.above.append(stack)
            machine.stack = stack = []
        elif op == MEMOIZE:
            memo.append(stack[-1])
        elif op == 0x2E:  # STOP
            if len(stack) != 1 or machine.above:
                raise Refused("it ends with more or less than one value")
            machine.budget.ops = left
            return stack[0], at
        elif op in CONSTANTS:
            stack.append(CONSTANTS[op])
        elif op == 0x4A:  # BININT
            stack.append(INT(data, at)[0])
            at += 4
        elif op == 0x65:  # APPENDS
            items, machine.stack = stack, machine.above.pop()
            stack = machine.stack
            exactly(stack[-1], list).extend(items)
        elif op == 0x74:  # TUPLE
            value, machine.stack = tuple(stack), machine.above.pop()
            stack = machine.stack
            stack.append(value)
        else:
            at = HANDLERS[op](machine, at)
            stack = machine.stack
    raise Refused(f"it has more than {MAX_OPS} instructions")
