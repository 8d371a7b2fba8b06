"""The hash of a raw dataset's listing: it enters the name of a cache, and shows that a source has changed."""

import hashlib
import json


class ListingHash:
    """SHA-256 of path, size and etag of every file, added in the order of the paths; holds no listing."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self.files = 0

    def add(self, path: str, size: int, etag: str) -> None:
        """Takes the next file; `path` is relative to the root of the source."""
        self._sha256.update(json.dumps([path, size, etag], separators=(",", ":")).encode() + b"\n")
        self.files += 1

    def hexdigest(self) -> str:
        """Returns the hash of all files so far as 64 hex digits."""
        return self._sha256.hexdigest()
