"""What a file's value may be, and what it may cost: limits, and the walk that holds a value against them.

Used by the interpreter of pickles and by the stand-ins for the names in them.
"""

from collections.abc import Callable, Mapping
from itertools import chain
from types import NoneType
from typing import Any

import numpy as np

MAX_OPS = 1_000_000  # of one stream; a file of LEAD's has some thousand
MAX_ITEMS = 1_000_000  # of a value, each counted as often as a walk over it meets it
MAX_DEPTH = 64  # containers in containers; LEAD's files have five
_TEXT_SHOWN = 80

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


def keys_of(items: Any) -> list[Any]:
    """Returns the members of a set's list; raises Refused when it is no list, or a member is no plain scalar."""
    check_keys(exactly(items, list))
    return list(items)


def check_value(value: Any, budget: Budget) -> None:
    """Raises Refused for what is no tree of plain data within the limits.

    It walks level by level, so that a container that holds itself is too deep, and one that is shared too large.
    """
    level = [] if type(value) in _SCALARS else [value]
    for _ in range(MAX_DEPTH):
        if not level:
            return
        kinds = set(map(type, level))
        if not kinds <= _CONTAINERS:
            strange = next(item for item in level if type(item) not in _CONTAINERS)
            raise Refused(f"it holds {shown(strange)} where a value belongs")
        budget.items -= len(level) + sum(map(len, level))
        if budget.items < 0:
            raise Refused(f"it holds more than {MAX_ITEMS} values, counted as often as they are met")
        held = [item.values() if type(item) is dict else item for item in level] if dict in kinds else level
        level = [item for item in chain.from_iterable(held) if type(item) not in _SCALARS]
    if level:
        raise Refused(f"its containers are nested more than {MAX_DEPTH} deep")


def check_keys(keys: list[Any]) -> None:
    """Raises Refused for a key or a set's member that is no plain scalar."""
    if not _KEYS.issuperset(map(type, keys)):
        kind = next(kind for kind in map(type, keys) if kind not in _KEYS)
        raise Refused(f"a key or a set's member is a {kind.__name__}")


def exactly(value: Any, kind: type) -> Any:
    """Returns a value; raises Refused when it is of another type."""
    if type(value) is not kind:
        raise Refused(f"it uses {shown(value)} as a {kind.__name__}")
    return value


def named(names: Names, module: str, name: str) -> Name:
    """Returns what a name stands for; raises Refused for one that is not in the table."""
    found = names.get((module, name))
    if found is None:
        raise Refused(f"it names {f'{module}.{name}'[:_TEXT_SHOWN]!r}, which is no plain data")
    return found


def shown(value: Any) -> str:
    """Returns what a message calls a value."""
    return value.text if type(value) is Name else f"a {type(value).__name__}"
