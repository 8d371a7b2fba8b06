"""A published cache that holds what a build would make, and more collections: it is used in that build's place.

For runs without a cluster, which name no cache: stages that read other collections of one tree share what is there.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from lead_protocol.cache_digest import digest_of
from lead_protocol.manifests import CacheManifest
from lead_protocol.object_keys import CacheKeys, caches_prefix
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.data.stored_manifest import stored_manifest
from lead_trainer.errors import BadData


def held_by_another(store: ObjectStore, wanted: CacheKeys, collections: Sequence[str]) -> CacheManifest | None:
    """Returns the smallest cache of the same source, config and version that has every one of the collections."""
    caches = _published(store, wanted.namespace)
    held = [manifest for manifest in caches if _holds(manifest, wanted.digest, collections)]
    return min(held, key=lambda manifest: (manifest.size_bytes, manifest.digest), default=None)


def _holds(manifest: CacheManifest, digest: str, collections: Sequence[str]) -> bool:
    """Tells whether a cache would have this digest, had it been built with these of its collections alone."""
    if not manifest.collections.keys() >= set(collections):
        return False
    part = {name: manifest.collections[name] for name in collections}
    return digest_of(manifest.model_copy(update={"collections": part})) == digest


def _published(store: ObjectStore, namespace: str) -> Iterator[CacheManifest]:
    """Yields the manifest of each cache; one request a cache, however many shards it has."""
    prefix = caches_prefix(namespace)
    after = ""
    while (info := next(store.list(prefix, start_after=after), None)) is not None:
        digest = info.key.removeprefix(prefix).partition("/")[0]
        after = f"{prefix}{digest}0"  # comes right behind every key that begins `<digest>/`
        with suppress(BadData):  # a damaged cache is in nobody's place
            if manifest := stored_manifest(store, CacheKeys(namespace, digest)):
                yield manifest
