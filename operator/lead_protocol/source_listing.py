"""What counts as raw data, and the hash of its listing, which names a cache and shows that a source has changed.

LEAD keeps folders beside `data` that are made from it and must not change its digest. One of them takes the place of
what it was made from: entries of LEAD's persistent cache count in a tree that has lost its pictures, and in no other.
"""

import hashlib
import json
import re
from typing import Self

_DERIVED_FOLDERS = ("buckets/", "cache/", "results/", "checkpoints/")
_PICTURE = re.compile(r"data/[^/]+/[^/]+/rgb/[^/]+")
_CACHED_VIEW = re.compile(r"cache/[^/]+/[^/]+/(?:[^/]+/){12}(?:normal|perturbated)/[0-9]+\.pkl")


def is_raw(path: str) -> bool:
    """Returns whether a file, by its path below the root of the source, is raw data and not derived from it."""
    return not path.startswith(_DERIVED_FOLDERS)


def is_picture(path: str) -> bool:
    """Returns whether a file is a picture of LEAD's tree, which every build from the tree's own files needs."""
    return _PICTURE.fullmatch(path) is not None


def is_cached_view(path: str) -> bool:
    """Returns whether a file is an entry of LEAD's persistent cache: one view of one frame, raw without pictures."""
    return _CACHED_VIEW.fullmatch(path) is not None


class ListingHash:
    """SHA-256 of path, size and etag of every file, added in the order of the paths; holds no listing."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self.files = 0

    def copy(self) -> Self:
        """Returns a hash of the same files that goes on by itself."""
        other = type(self)()
        other._sha256, other.files = self._sha256.copy(), self.files
        return other

    def add(self, path: str, size: int, etag: str) -> None:
        """Takes the next file; `path` is relative to the root of the source."""
        self._sha256.update(json.dumps([path, size, etag], separators=(",", ":")).encode() + b"\n")
        self.files += 1

    def hexdigest(self) -> str:
        """Returns the hash of all files so far as 64 hex digits."""
        return self._sha256.hexdigest()
