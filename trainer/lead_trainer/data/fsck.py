"""Checks a committed cache object by object against its manifest; called by the command line, changes nothing."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from lead_protocol.manifests import StoredObject
from lead_protocol.object_keys import CacheKeys
from lead_protocol.store.object_store import ObjectStore, StoreError
from lead_trainer.data.stored_manifest import stored_manifest
from lead_trainer.errors import BadData

CHUNK_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class Finding:
    """One fault of a cache."""

    key: str
    fault: str


def fsck_cache(store: ObjectStore, keys: CacheKeys) -> list[Finding]:
    """Returns every object that is missing, of another size, or of other bytes; an empty list means valid."""
    manifest_key = keys.manifest
    try:
        manifest = stored_manifest(store, keys)
    except BadData as error:
        return [Finding(manifest_key, str(error))]
    if manifest is None:
        return [Finding(manifest_key, "there is no manifest: the cache was never completed")]
    objects = [manifest.routes_object, *(entry.object for entry in manifest.collections.values())]
    objects += [entry.object for entry in manifest.shards] + list(manifest.metas)
    return list(_findings(store, objects))


def _findings(store: ObjectStore, objects: list[StoredObject]) -> Iterator[Finding]:
    for item in objects:
        info = store.head(item.key)
        if info is None:
            yield Finding(item.key, "is missing")
        elif info.size != item.size:
            yield Finding(item.key, f"has {info.size} bytes, expected {item.size}")
        else:
            try:
                found = _sha256(store, item)
            except StoreError as error:
                yield Finding(item.key, f"cannot be read: {error}")
                continue
            if found != item.sha256:
                yield Finding(item.key, f"has SHA-256 {found}, expected {item.sha256}")


def _sha256(store: ObjectStore, item: StoredObject) -> str:
    digest = hashlib.sha256()
    for offset in range(0, item.size, CHUNK_BYTES):
        digest.update(store.get_range(item.key, offset, min(CHUNK_BYTES, item.size - offset)))
    return digest.hexdigest()
