"""The last step of a build: the manifest, which proves that every part is staged. Called by `build`."""

from collections.abc import Mapping, Sequence
from typing import Any

from lead_protocol.manifests import (
    CacheManifest,
    CollectionEntry,
    RouteCounts,
    ShardEntry,
    StoredObject,
)
from lead_protocol.object_keys import CacheKeys
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.contract.raw_data import Scan
from lead_trainer.data.build_parts import PartRecord
from lead_trainer.data.stored_manifest import stored_manifest
from lead_trainer.errors import BadData

KEPT = "kept"  # the reason code of a route that is used without any remark


def finished_manifest(
    *,
    digest: str,
    recipe: str,
    builder: str,
    config: Mapping[str, Any],
    source_sha256: str,
    scan: Scan,
    routes: StoredObject,
    collections: Mapping[str, StoredObject],
    parts: Sequence[PartRecord],
    facts: Mapping[str, Sequence[float]],
) -> CacheManifest:
    """Returns the manifest of a cache whose parts are all complete; a pure function, so two finishers agree."""
    reasons: dict[str, int] = {}
    for verdict in sorted(scan.verdicts, key=lambda verdict: verdict.reason):
        if verdict.reason != KEPT:
            reasons[verdict.reason] = reasons.get(verdict.reason, 0) + 1
    entries = {
        collection.name: CollectionEntry(
            object=collections[collection.name],
            samples=sum(len(bucket.samples) for bucket in collection.buckets),
            buckets=len(collection.buckets),
        )
        for collection in scan.collections
    }
    small = [routes, *collections.values()]
    return CacheManifest(
        digest=digest,
        recipe=recipe,
        builder=builder,
        config=dict(config),
        source_sha256=source_sha256,
        routes=RouteCounts(
            total=len(scan.verdicts), kept=sum(verdict.kept for verdict in scan.verdicts), reasons=reasons
        ),
        routes_object=routes,
        collections=entries,
        shards=[ShardEntry(object=part.shard, records=part.records) for part in parts],
        metas=[part.metas for part in parts if part.metas is not None],
        samples=sum(part.records for part in parts),
        size_bytes=sum(part.size_bytes for part in parts) + sum(item.size for item in small),
        facts={name: list(values) for name, values in facts.items()},
    )


def stage_manifest(store: ObjectStore, keys: CacheKeys, manifest: CacheManifest) -> CacheManifest:
    """Ends a build; returns the manifest that is there afterwards, which an equal one of another worker may be."""
    key = keys.manifest
    if store.create(key, manifest.model_dump_json().encode()):
        return manifest
    found = stored_manifest(store, keys)
    if found is None or found.samples != manifest.samples:
        raise BadData(f"{store.url}/{key} exists already with other content; delete this cache and build again")
    return found
