"""What counts as raw data, and the hash of its listing, which names a cache and shows that a source has changed."""

import hashlib
import json

# LEAD keeps these beside `data`; they are made from the tree and must not change its digest.
_DERIVED_FOLDERS = ("buckets/", "cache/", "results/", "checkpoints/")


def is_raw(path: str) -> bool:
    """Tells whether a file, by its path below the root of the source, is raw data and none that was made from it."""
    return not path.startswith(_DERIVED_FOLDERS)


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
