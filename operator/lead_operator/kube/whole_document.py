"""Parses small JSON documents at once, where that finds the same parts as `json_slices`, and returns their sizes.

Used by `kube.object_reader` before it slices: one parse in C takes a tenth of the time. It answers only for
documents that are, byte for byte, what a parser's value is written as again. Then there is no key twice or in
disguise, no space, no number that changes when it is read, and the size of each part is that of the part written. For
every other document the answer is None, and slicing decides. It never recurses, and it parses nothing that is large.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

import orjson

from lead_protocol.json_slices import JsonText

SMALL_BYTES: Final = 32 * 1024  # 1.5 MB of objects at most, where it is all `[[],[],…]`
_PAGE = re.compile(rb'\{"apiVersion":"[^"\\]*","items":\[')
_END_OF_ITEMS: Final = b'],"kind":"'
_NEXT_ITEM: Final = b'},{"apiVersion":'
_EVENT = re.compile(rb'\{"type":"([A-Z]+)","object":(?=\{)')


@dataclass(frozen=True)
class WholeDocument:
    """A small document that is written as the API server writes."""

    value: dict[str, Any]
    _escaped: bool  # "<", ">" and "&" are written as Go does by default: the same length for each mention

    def size(self, part: Any) -> int:
        """Returns how many bytes a part of the value takes in the document."""
        return len(_written(part, escaped=self._escaped))


def parse_whole(raw: bytes) -> WholeDocument | None:
    """Returns a document parsed, or None where only slicing can read it; never raises."""
    if len(raw) > SMALL_BYTES:
        return None
    raw, escaped = raw.strip(b" \t\r\n"), b"\\u00" in raw
    try:
        value = orjson.loads(raw)
        same = isinstance(value, dict) and _written(value, escaped=escaped) == raw
    except (ValueError, TypeError):  # TypeError: too deep to be written
        return None
    return WholeDocument(value, escaped) if same else None


def nests_deeper(value: Any, most: int) -> bool:
    """Returns whether lists and objects nest more than so many levels."""
    level = [value]
    for _ in range(most):
        children = [child for each in level for child in (each.values() if isinstance(each, dict) else each)]
        level = [child for child in children if isinstance(child, (dict, list))]
        if not level:
            return False
    return True


def split_page(raw: bytes) -> tuple[list[bytes], dict[str, Any]] | None:
    """Returns the items of one page of a list, unread, and the page's metadata; None where only slicing can."""
    begins, end = _PAGE.match(raw), raw.rfind(_END_OF_ITEMS)
    if begins is None or end < begins.end():
        return None
    tail = parse_whole(b"{" + raw[end + 2 :])
    if tail is None or tail.value.keys() != {"kind", "metadata"} or not isinstance(tail.value["metadata"], dict):
        return None
    first, *others = raw[begins.end() : end].split(_NEXT_ITEM)
    items = [first, *(_NEXT_ITEM[2:] + item for item in others)]
    items[:-1] = [item + b"}" for item in items[:-1]]
    if items == [b""]:
        return [], tail.value["metadata"]
    return (items, tail.value["metadata"]) if all(map(_is_one_object, items)) else None


def split_event(raw: bytes) -> tuple[str, bytes] | None:
    """Returns type and object, unread, of one event of a watch; None where only slicing can."""
    begins, raw = _EVENT.match(raw), raw.rstrip(b" \t\r\n")
    if begins is None or not raw.endswith(b"}") or not _is_one_object(found := raw[begins.end() : -1]):
        return None
    return begins[1].decode(), found


def _is_one_object(raw: bytes) -> bool:
    """Returns whether these bytes are one object, from the first to the last."""
    if raw[:1] != b"{" or raw[-1:] != b"}":
        return False
    try:
        if len(raw) > SMALL_BYTES:
            return next(JsonText(b"[" + raw + b"]").elements()) == (1, len(raw) + 1)
        return isinstance(orjson.loads(raw), dict)
    except ValueError:
        return False


def _written(value: Any, *, escaped: bool) -> bytes:
    text = orjson.dumps(value)
    if escaped:  # these three stand in strings alone
        text = text.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
    return text
