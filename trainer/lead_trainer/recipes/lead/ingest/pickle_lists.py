"""Lists of numbers in a pickle stream, read at once: points, rows, matrices and short integers, most of LEAD's files.

One instruction at a time would take twice as long. What is not exactly such a list is left to the interpreter, which
does the same to it in more steps.
"""

import re
import struct
from typing import Any

_MARK, _APPEND, _APPENDS, _SMALL_INT, _LIST = 0x28, 0x61, 0x65, 0x4B, 0x5D
_LONGEST = 16  # small integers of one list
_INTS = {b"K" * count + b"e": 2 * count for count in range(1, _LONGEST)}
_WIDTHS = (3, 4)  # floats of a row
_THREE, _FOUR = (struct.Struct(">" + "xd" * width).unpack_from for width in _WIDTHS)
_ONE_ROW = (b"\x94(", _APPEND)  # what stands before and behind the one row of a list: MEMOIZE, MARK, and APPEND
# EMPTY_LIST, MEMOIZE, MARK, BINFLOATs and APPENDS of each row, then the APPENDS of the rows; nothing is tried twice.
_ROWS = {
    width: (
        re.compile(rb"(?:\]\x94\((?:G.{8}){%d}e){1,1000}+e" % width, re.DOTALL).match,
        struct.Struct(">xxx" + "xd" * width + "x").iter_unpack,
    )
    for width in _WIDTHS
}


def filled(items: list[Any], memo: list[Any], data: bytes, at: int) -> int:
    """Fills a new list that the stream has just remembered; returns where the next opcode is.

    That is `at`, with the list still empty, where no list of numbers follows. Raises IndexError where the stream ends.
    """
    op = data[at]
    if op == _MARK:
        kinds = data[at + 1 : at + 29 : 9]
        if kinds == b"GGGe":
            items += _THREE(data, at + 1)
            return at + 29
        if kinds == b"GGGG" and data[at + 37] == _APPENDS:
            items += _FOUR(data, at + 1)
            return at + 38
        if data[at + 1] == _LIST:
            return _rows(items, memo, data, at + 1) or at
        if data[at + 1] == _SMALL_INT:
            return _small_ints(items, data, at + 1) or at
    elif op == _SMALL_INT and data[at + 2] == _APPEND:
        items.append(data[at + 1])
        return at + 3
    elif op == _LIST and data[at + 3 : at + 31 : 9] == b"GGGe" and (data[at + 1 : at + 3], data[at + 31]) == _ONE_ROW:
        row = [*_THREE(data, at + 3)]
        memo.append(row)
        items.append(row)
        return at + 32
    return at


def _rows(items: list[Any], memo: list[Any], data: bytes, at: int) -> int:
    """Fills a list with rows of floats up to its APPENDS; returns where that ends, or 0 where others follow."""
    match, unpack = _ROWS[3 if data[at + 30 : at + 31] == b"e" else 4]
    if found := match(data, at):
        end = found.end()
        items += map(list, unpack(data[at : end - 1]))
        memo += items
        return end
    return 0


def _small_ints(items: list[Any], data: bytes, at: int) -> int:
    """Fills a list with integers below 256 up to its APPENDS; returns where that ends, or 0 where others follow."""
    kinds = data[at : at + 2 * _LONGEST : 2]
    size = _INTS.get(kinds[: kinds.find(b"e") + 1])
    if size is None:
        return 0
    items += data[at + 1 : at + size : 2]
    return at + size + 1
