"""JSON that somebody else wrote: one kind of error, whatever is wrong with it."""

import json
import re
from collections.abc import Iterator
from typing import Any

_SPACE = re.compile(r"[ \t\r\n]*")


def raw_json(data: bytes | str) -> Any:
    """Returns a document; raises ValueError for what is no JSON, and for one that is nested too deep to be walked."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def raw_json_rows(data: bytes) -> Iterator[Any]:
    """Yields the entries of a JSON list one after another, so that a table of gigabytes is never whole in memory.

    Raises ValueError for what is no list, no JSON, or nested too deep, when it comes to that place.
    """
    text, read = data.decode("utf-8"), json.JSONDecoder().raw_decode
    at = _after_space(text, 0)
    if text[at : at + 1] != "[":
        raise ValueError(f"it begins with {text[at : at + 10]!r}, expected a list")
    at = _after_space(text, at + 1)
    more = text[at : at + 1] != "]"
    while more:
        try:
            row, at = read(text, at)
        except RecursionError:
            raise ValueError("it is nested too deep") from None
        yield row
        at = _after_space(text, at)
        if text[at : at + 1] not in (",", "]"):
            raise ValueError(f"an entry is followed by {text[at : at + 10]!r} at {at}, expected a comma or the end")
        more = text[at] == ","
        at = _after_space(text, at + 1) if more else at
    if text[_after_space(text, at + 1) :]:
        raise ValueError(f"the list ends at {at}, but the file goes on")


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None  # it matches no characters, too
    return found.end()
