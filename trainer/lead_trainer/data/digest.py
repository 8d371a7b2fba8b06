"""The name of a cache: a hash of everything its bytes depend on, and of nothing else.

`build` computes it before the first record is made. The preparation is handed only the values that entered the
digest, so it cannot read one that did not.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from lead_protocol.source_listing import ListingHash
from lead_trainer.recipes.recipe import SourceFile

CACHE_FORMAT = "lead-cache/1"  # layout of records, shards and tables


def canonical_json(value: Any) -> bytes:
    """Returns the one JSON text of a value: sorted keys, no spaces, ASCII; raises ValueError on NaN and infinities."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain).encode()


def listing_sha256(files: Sequence[SourceFile]) -> str:
    """Returns the SHA-256 of a source listing: path, size and etag of every file in path order."""
    listing = ListingHash()
    for file in sorted(files, key=lambda file: file.path):
        listing.add(file.path, file.size, file.etag)
    return listing.hexdigest()


def cache_digest(
    *, source_sha256: str, collections: Sequence[str], keys: Mapping[str, Any], recipe: str, version: str
) -> str:
    """Returns the digest of a cache; `collections` count as a set, `keys` are the read config values."""
    document = {
        "collections": sorted(set(collections)),
        "config": dict(keys),
        "format": CACHE_FORMAT,
        "recipe": recipe,
        "source": source_sha256,
        "version": version,
    }
    return hashlib.sha256(canonical_json(document)).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, set, frozenset)):
        return sorted(value) if isinstance(value, (set, frozenset)) else list(value)
    raise TypeError(f"a config value of type {type(value).__name__} cannot enter a cache digest")
