"""The verbs on objects that operator and trainer share, and what can go wrong with them.

`s3.py` implements them for MinIO or any plain-S3 server, `folder.py` for a directory; one conformance suite tests both.
Keys are relative to the store's prefix. Every call ends within its total deadline, with a result or a StoreError.

    StoreError
    ├── StoreUnavailable   no answer, 5xx, 429 until the deadline: wait and try again
    ├── StoreFull          507, ENOSPC: a person must make room
    ├── StoreDenied        403, bad credentials: a person must act
    ├── StoreSkew          the clocks differ by more than the server allows
    ├── ObjectNotFound     the key does not exist
    └── ObjectCorrupt      the bytes are not what was promised (size, checksum, too large)
        └── ObjectReplaced   another version lies there than the one that was asked for
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class StoreError(Exception):
    """A storage call that failed for good; the message names store, key, what was found and what to do."""


class StoreUnavailable(StoreError):
    """The store did not answer within the total deadline."""


class StoreFull(StoreError):
    """The store has no room left."""


class StoreDenied(StoreError):
    """The store refused the credentials or the permission."""

    def __init__(self, message: str, *, of_key: bool | None = False) -> None:
        """`of_key`: it was the key itself, which may have been rotated; None where the response does not show it."""
        super().__init__(message)
        self.of_key = of_key


class StoreSkew(StoreError):
    """The store refused the request's time stamp; the message holds `exit_codes.SET_CLOCKS`."""


class ObjectNotFound(StoreError):
    """The key does not exist."""


class ObjectCorrupt(StoreError):
    """The object's bytes are not what was promised."""


class ObjectReplaced(ObjectCorrupt):
    """The object was written again since the version that was asked for."""


@dataclass(frozen=True)
class ObjectInfo:
    """The result of a LIST or HEAD for one object."""

    key: str
    size: int
    etag: str
    sha256: str = ""  # of its bytes, where `attest` asked for it and the store keeps it


class ObjectStore(Protocol):
    """Objects by key; safe to share between threads of one process."""

    @property
    def url(self) -> str:
        """Where the store is, for messages and URIs: `s3://bucket/prefix` or `file:///folder`."""

    def get(self, key: str, *, max_bytes: int, etag: str = "") -> bytes:
        """Returns the whole object; raises ObjectNotFound, or ObjectCorrupt when it is larger than `max_bytes`.

        `etag`, as returned by LIST or HEAD: of that version alone; raises ObjectReplaced where another lies there.
        """

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Returns exactly `length` bytes from `offset`; raises ObjectCorrupt when the object is shorter."""

    def download(self, key: str, path: Path, *, size: int, sha256: str) -> None:
        """Streams an object to `path` (`.part`, fsync, rename); raises ObjectCorrupt unless size and SHA-256 match."""

    def head(self, key: str) -> ObjectInfo | None:
        """Returns size and etag, or None when the key does not exist."""

    def attest(self, key: str) -> ObjectInfo | None:
        """Like `head`, with the SHA-256 of the bytes as the store itself has computed it; "" where it keeps none."""

    def copy(self, source: str, target: str, *, etag: str) -> None:
        """Copies an object inside the store, replacing what was there, and has the store compute its SHA-256.

        Raises ObjectReplaced where `source` is not the version `etag` any more, and ObjectNotFound.
        """

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yields every object below `prefix` in key order, after the key `start_after`."""

    def put(self, key: str, data: bytes) -> None:
        """Writes an object, replacing what was there; only for objects with a single writer."""

    def create(self, key: str, data: bytes) -> bool:
        """Writes an object only if the key is free (`If-None-Match: *`).

        Returns True when the stored bytes are `data` (also when an earlier try of this very call landed but its answer
        was lost: on 412 the object is read back and compared), False when other bytes are there already.
        """

    def create_file(self, key: str, path: Path, *, sha256: str) -> bool:
        """Like `create` for a file of any size, in parts; False when an object of another size or SHA-256 is there."""

    def delete(self, key: str) -> None:
        """Removes an object; a missing key is fine."""
