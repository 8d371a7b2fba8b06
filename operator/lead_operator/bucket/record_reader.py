"""Reads small records below one prefix, each only once while its etag stays: what `bucket_view` is made of."""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from lead_protocol.store.object_store import ObjectCorrupt, ObjectInfo, ObjectNotFound, ObjectStore

SMALL_BYTES = 64 * 1024  # records up to this are read side by side; of larger ones one is in memory at a time
MAX_LISTED_BYTES = 16 << 20  # in memory, for one listing: a key may be 1,024 bytes, and four times as many here
OBJECT_BYTES = 400  # of a listed object besides its key

Record = TypeVar("Record")

_one_large = threading.Lock()


@dataclass
class Records:
    """What earlier reads have parsed: key -> (etag, record or None where it did not parse)."""

    parsed: dict[str, tuple[str, Any]] = field(default_factory=dict)
    large: bool = False  # one LIST does not hold everything: only those of the parts with records are made


class RecordReader:
    """One LIST of a prefix, and GETs of the objects that changed since the last one.

    Where one LIST would be too long, each of `parts` is listed instead: objects elsewhere are not records. `excess`
    names which of them is too long as well, so that what was not listed is not taken for absent; empty where all is
    listed. Too long is what has `max_objects`, and what would take more than MAX_LISTED_BYTES, all parts together.
    """

    def __init__(
        self, store: ObjectStore, records: Records, prefix: str, max_objects: int, parts: Sequence[str] = (),
        *, parts_alone: bool = False,
    ) -> None:  # fmt: skip
        """`parts_alone`: list nothing but the parts, however little lies beside them."""
        self.store = store
        self._records = records
        self._listed: dict[str, ObjectInfo] = {}
        self._taken = dict[str, int]()  # prefix -> bytes of memory that its objects take
        self._created: dict[str, bytes] = {}
        by_parts = parts_alone or bool(parts and records.large)
        self.excess = "" if by_parts else self._list(prefix, max_objects)
        if parts and (self.excess or by_parts):
            records.large = records.large or not parts_alone
            self._listed.clear()
            self._taken.clear()
            self.excess = next(filter(None, (self._list(part, max_objects) for part in parts)), "")
        for key in [key for key in records.parsed if key.startswith(prefix) and key not in self._listed]:
            del records.parsed[key]

    def _list(self, prefix: str, max_objects: int) -> str:
        taken, most = 0, MAX_LISTED_BYTES - sum(self._taken.values())
        for number, info in enumerate(islice(self.store.list(prefix), max_objects), 1):
            self._listed[info.key] = info
            self._taken[prefix] = taken = taken + OBJECT_BYTES + sys.getsizeof(info.key)
            if number == max_objects:
                return _too_much(f"{max_objects} objects or more", prefix)
            if taken > most:
                largest = max(self._taken, key=lambda each: self._taken[each])
                return _too_much(f"objects whose keys take more than {MAX_LISTED_BYTES >> 20} MiB", largest)
        return ""

    def keys_below(self, prefix: str) -> Iterator[str]:
        """Yields the listed keys below a prefix, in key order."""
        return (key for key in self._listed if key.startswith(prefix))

    def parsed(self, key: str, parse: Callable[[bytes], Record | None], max_bytes: int) -> Record | None:
        """Returns a listed object as `parse` makes it; None where it is not listed, too large or invalid."""
        if key in self._created:
            return parse(self._created[key])
        info = self._listed.get(key)
        if info is None:
            return None
        held = self._records.parsed.get(key)
        if held is None or held[0] != info.etag:
            try:
                with _one_large if info.size > SMALL_BYTES else nullcontext():
                    held = (info.etag, parse(self.store.get(key, max_bytes=max_bytes)))
            except ObjectNotFound:
                return None  # deleted since the LIST, or listed too early: the next read sees it
            except ObjectCorrupt:
                held = (info.etag, None)  # far too large for what it claims to be
            self._records.parsed[key] = held
        record: Record | None = held[1]
        return record

    def note_created(self, key: str, data: bytes) -> None:
        """Adds an object that this process has just created: what it holds need not be listed and read again."""
        self._created[key] = data
        self._listed = dict(sorted((self._listed | {key: ObjectInfo(key, len(data), "")}).items()))

    def forget(self, key: str) -> None:
        """Makes the next read fetch an object again: the result may differ although the object has not changed."""
        self._records.parsed.pop(key, None)


def _too_much(what: str, prefix: str) -> str:
    return (
        f"{what} below {prefix}, which are not read; remove what neither the operator nor its pods have written there"
    )
