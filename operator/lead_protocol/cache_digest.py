"""The name of a cache: a hash of everything its bytes depend on, and of nothing else. Pure.

A build computes it before the first record is made; whoever publishes the cache computes it again from what its
manifest records, so that a manifest cannot take another cache's name.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from lead_protocol.manifests import CacheManifest

CACHE_FORMAT = "lead-cache/1"  # layout of records, shards and tables


def canonical_json(value: Any) -> bytes:
    """Returns the one JSON text of a value: sorted keys, no spaces, ASCII; raises ValueError on NaN and infinities."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain).encode()


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


def digest_of(manifest: CacheManifest) -> str:
    """Returns the digest of what a manifest records; equal to `manifest.digest` unless somebody wrote it by hand."""
    return cache_digest(
        source_sha256=manifest.source_sha256,
        collections=list(manifest.collections),
        keys=manifest.config,
        recipe=manifest.recipe,
        version=manifest.builder,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, set, frozenset)):
        return sorted(value) if isinstance(value, (set, frozenset)) else list(value)
    raise TypeError(f"a config value of type {type(value).__name__} cannot enter a cache digest")
