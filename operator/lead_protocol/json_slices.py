"""Finds the members of a JSON document without building it: of hostile documents only the wanted parts are parsed.

Used by the operator on objects of the API server and on manifests in the bucket, both of which anybody may have
written. It never recurses, so no depth ends a process, and it holds at most a copy of the bytes: 1.5 MB of `[[],[],…]`,
which a parser makes 40 MB of, costs tens of milliseconds. Values come as they stand; whoever gets one judges it.
"""

import re
from collections.abc import Iterator
from itertools import accumulate
from operator import indexOf

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_PLAIN = rb'[^"\[\]{}]*+'
# Possessive, so that no document makes it backtrack or keep what it passed. What is repeated begins with a quote and
# has no alternatives: Python before 3.11.5 takes a wrong path where a possessive repetition goes back (gh-106052).
_BETWEEN = re.compile(_PLAIN + rb"(?:" + _STRING + _PLAIN + rb")*+", re.DOTALL)
_ONE_STRING = re.compile(_STRING, re.DOTALL)
_SCALAR = re.compile(rb'[^\s,:"\[\]{}]++')
_SPACE = re.compile(rb"[ \t\r\n]*+")
_OPEN, _CLOSE, _QUOTE = b"[{", b"]}", ord('"')
_STEP = [1 if byte in _OPEN else -1 if byte in _CLOSE else 0 for byte in range(256)]
_STEPS_OF_ITS_OWN = 2_000  # brackets of one value; with more, adding up every byte of it takes less time


class NotJson(ValueError):
    """The bytes are no JSON document as far as they were read."""


class JsonText:
    """One document, and where the parts of it lie."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._without_strings: bytearray | None = None

    def members(self, at: int = 0) -> Iterator[tuple[bytes, int, int]]:
        """Yields (key, start, end) of each member of the object at `at`; keys as they are written, values unread.

        Raises NotJson where the brackets, quotes, colons or commas on the way do not fit.

        Example: of `{"a": [1], "b": 2}` it yields `(b"a", 6, 9)` and `(b"b", 16, 17)`.
        """
        at = self._expect(at, b"{")
        if self.raw[at : at + 1] == b"}":
            return
        while True:
            key = _ONE_STRING.match(self.raw, at)
            if key is None:
                raise NotJson(f"expected a key at byte {at}")
            start = self._expect(key.end(), b":")
            end = self._end_of(start)
            yield self.raw[at + 1 : key.end() - 1], start, end
            following = self._skip_space(end)
            if self.raw[following : following + 1] == b"}":
                return
            at = self._expect(following, b",")

    def elements(self, at: int = 0) -> Iterator[tuple[int, int]]:
        """Yields (start, end) of each element of the list at `at`; raises NotJson as `members` does."""
        at = self._expect(at, b"[")
        if self.raw[at : at + 1] == b"]":
            return
        while True:
            end = self._end_of(at)
            yield at, end
            following = self._skip_space(end)
            if self.raw[following : following + 1] == b"]":
                return
            at = self._expect(following, b",")

    def depth(self) -> int:
        """Returns how many levels of lists and objects nest."""
        return max(accumulate(map(_STEP.__getitem__, self._brackets())), default=0)

    def _end_of(self, at: int) -> int:
        first = self.raw[at : at + 1]
        if first not in (b"[", b"{"):
            value = (_ONE_STRING if first == b'"' else _SCALAR).match(self.raw, at)
            if value is None:
                raise NotJson(f"expected a value at byte {at}")
            return value.end()
        start, depth = at, 0
        for _ in range(_STEPS_OF_ITS_OWN):
            if at >= len(self.raw) or self.raw[at] == _QUOTE:  # an opening quote here is of a string that never ends
                raise NotJson(f"the value at byte {start} has no end")
            depth += _STEP[self.raw[at]]
            if depth == 0:
                return at + 1
            between = _BETWEEN.match(self.raw, at + 1)
            at = len(self.raw) if between is None else between.end()
        try:
            return at + indexOf(accumulate(map(_STEP.__getitem__, memoryview(self._brackets())[at:]), initial=depth), 0)
        except ValueError as error:
            raise NotJson(f"the value at byte {start} has no end") from error

    def _brackets(self) -> bytearray:
        """Returns the document with blanks for strings, so that every bracket in it is one, where it was."""
        if self._without_strings is None:
            without = bytearray(self.raw)  # changed where it stands: `sub` would hold an object for each string
            for string in _ONE_STRING.finditer(self.raw):
                without[string.start() : string.end()] = b" " * (string.end() - string.start())
            self._without_strings = without
        return self._without_strings

    def _expect(self, at: int, mark: bytes) -> int:
        """Returns where what follows `mark` begins."""
        at = self._skip_space(at)
        if self.raw[at : at + 1] != mark:
            raise NotJson(f"expected {mark.decode()} at byte {at}")
        return self._skip_space(at + 1)

    def _skip_space(self, at: int) -> int:
        space = _SPACE.match(self.raw, at)
        return at if space is None else space.end()
