"""What the operator needs of a cache's manifest, read without building the manifest.

Used by `bucket.bucket_view`. A manifest has an entry for each shard and each route, some 250 bytes each: in 16 MiB
lie 60,000 of them, which is a cache of 8 TB. As objects that is 600 MiB, and pods can write one; in slices it
is the bytes and the few small members. `record_reader` has one large object in memory at a time.
"""

from dataclasses import replace
from typing import Annotated, Final

import orjson
from pydantic import Field

from lead_operator.decisions.observed import ObservedCacheManifest
from lead_protocol.json_slices import JsonText
from lead_protocol.manifests import MAX_COUNT, RouteCounts, Sha256, sha256_hex
from lead_protocol.strict_model import StrictModel

MAX_MEMBER_BYTES: Final = 64 * 1024  # of what is parsed of a manifest; reasons of routes are the longest


class _Head(StrictModel):
    """The members of a manifest that are read; named as in lead_protocol.manifests.CacheManifest."""

    digest: Sha256
    source_sha256: Sha256
    routes: RouteCounts
    samples: Annotated[int, Field(ge=0, le=MAX_COUNT)]
    size_bytes: Annotated[int, Field(ge=0, le=MAX_COUNT)]


def read_cache_facts(data: bytes) -> ObservedCacheManifest:
    """Returns the facts of a cache's manifest; for an invalid one only the SHA-256, without a digest."""
    sha256 = sha256_hex(data)
    try:
        return replace(cache_facts(data), sha256=sha256)
    except (ValueError, KeyError):
        return ObservedCacheManifest("", 0, 0, {}, 0, 0, 0, sha256=sha256)


def cache_facts(data: bytes) -> ObservedCacheManifest:
    """Returns the facts of a cache's manifest; raises ValueError (pydantic's too) or KeyError for an invalid one."""
    text = JsonText(data)
    found = {key.decode(): (start, end) for key, start, end in text.members()}
    small = {key: data[slice(*found[key])] for key in _Head.model_fields}
    if any(len(member) > MAX_MEMBER_BYTES for member in small.values()):
        raise ValueError(f"a member of the manifest is longer than {MAX_MEMBER_BYTES} bytes")
    head = _Head.model_validate({key: orjson.loads(member) for key, member in small.items()})
    return ObservedCacheManifest(
        digest=head.digest,
        routes_total=head.routes.total,
        routes_kept=head.routes.kept,
        route_reasons=dict(head.routes.reasons),
        samples=head.samples,
        shards=sum(1 for _ in text.elements(found["shards"][0])),
        size_bytes=head.size_bytes,
        source_sha256=head.source_sha256,
    )
