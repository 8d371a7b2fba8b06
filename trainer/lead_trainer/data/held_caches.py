"""A published cache that holds what a build would make, and more collections: it is used in that build's place.

For runs without a cluster, which name no cache: stages that read other collections of one tree share what is there.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from lead_protocol.cache_digest import digest_of
from lead_protocol.manifests import CacheManifest
from lead_protocol.object_keys import CacheKeys, caches_prefix
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.data.stored_manifest import stored_manifest
from lead_trainer.errors import BadData

SHOWN = 5  # differences of another cache


def held_by_another(store: ObjectStore, wanted: CacheKeys, collections: Sequence[str]) -> CacheManifest | None:
    """Returns the smallest cache of the same source, config and version that has every one of the collections."""
    caches = _published(store, wanted.namespace)
    held = [manifest for manifest in caches if _holds(manifest, wanted.digest, collections)]
    return min(held, key=lambda manifest: (manifest.size_bytes, manifest.digest), default=None)


def why_none_fits(
    store: ObjectStore,
    namespace: str,
    *,
    recipe: str,
    source_sha256: str,
    builder: str,
    config: Mapping[str, Any],
    collections: Sequence[str],
) -> str:
    """Returns how the published cache of the same files that is most like a wanted one differs; empty for none."""
    same = (recipe, source_sha256)
    others = [each for each in _published(store, namespace) if (each.recipe, each.source_sha256) == same]
    if not others:
        return ""
    differences = {each.digest: _differences(each, builder, config, collections) for each in others}
    nearest = min(others, key=lambda each: (len(differences[each.digest]), each.digest))
    found = differences[nearest.digest]
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return (
        f"cache {nearest.digest[:12]} of the same files does not fit: {'; '.join(found[:SHOWN])}{more}. "
        f"Another whole cache is built (that one takes {nearest.size_bytes / 2**20:.1f} MiB); with its values the run "
        "would use it"
    )


def _differences(
    manifest: CacheManifest, builder: str, config: Mapping[str, Any], collections: Sequence[str]
) -> list[str]:
    """Returns the differences between a cache and the wanted one, as text."""
    keys = sorted(config.keys() | manifest.config.keys())
    unlike = [key for key in keys if config.get(key) != manifest.config.get(key)]
    differences = [f"{key}: found {config.get(key)!r}, it has {manifest.config.get(key)!r}" for key in unlike]
    if lacking := sorted(set(collections) - manifest.collections.keys()):
        differences.append(f"it lacks collection {', '.join(lacking)}")
    if manifest.builder != builder:
        differences.append(f"it was prepared by version {manifest.builder}, this is {builder}")
    return differences


def _holds(manifest: CacheManifest, digest: str, collections: Sequence[str]) -> bool:
    """Returns whether a cache would have this digest, had it been built with these of its collections alone."""
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
