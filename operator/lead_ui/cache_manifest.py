"""A published cache as the page shows it, from its manifest; pure."""

from dataclasses import replace

from lead_protocol.manifests import CacheManifest
from lead_ui.model import Cache, Collection


def with_manifest(cache: Cache, manifest: CacheManifest) -> Cache:
    """Returns the cache with what its manifest states: routes and verdicts, collections, sizes, config, facts."""
    collections = tuple(
        Collection(name=name, samples=entry.samples, buckets=entry.buckets, size_bytes=entry.object.size)
        for name, entry in sorted(manifest.collections.items())
    )
    return replace(
        cache,
        routes_kept=manifest.routes.kept,
        routes_total=manifest.routes.total,
        reasons=dict(sorted(manifest.routes.reasons.items(), key=lambda each: -each[1])),
        collections=collections,
        shards=len(manifest.shards),
        shard_bytes=sum(entry.object.size for entry in manifest.shards),
        meta_bytes=sum(stored.size for stored in manifest.metas),
        builder=manifest.builder,
        config=manifest.config,
        facts=manifest.facts,
    )
