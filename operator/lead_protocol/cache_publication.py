"""From a staged cache to a published one, inside the store: checked, copied, verified, its manifest last.

Build pods write below builds/ alone. Who owns caches/ (the operator; without a cluster the command line) goes through
`publication_steps`. A copy is made by the store itself, which computes the SHA-256 of what it wrote; only a store that
keeps no checksums has its copies read. Every step first checks what exists, so a publication may be killed and
repeated at any point. What is published was checked where pods cannot write any more.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from pydantic import ValidationError

from lead_protocol.cache_digest import digest_of
from lead_protocol.manifests import (
    MAX_CONTAINERS,
    MAX_MANIFEST_BYTES,
    MAX_VALUES,
    CacheManifest,
    StoredObject,
    is_bloated,
    parse_cache_manifest,
    sha256_hex,
)
from lead_protocol.object_keys import BuildKeys, CacheKeys
from lead_protocol.store.object_store import ObjectCorrupt, ObjectInfo, ObjectNotFound, ObjectStore

CHUNK_BYTES = 8 * 1024 * 1024
PORTION = 200  # staged objects removed in one step
SHOWN_FAULTS = 3  # of a damaged cache
NO_OBJECT = "found no object"
_FOLDERS = ("shards/", "metas/", "buckets/")
Check = Callable[[CacheManifest], None]  # raises CacheRefused


class CacheRefused(Exception):
    """A staged cache is not what it claims to be, or not what was asked for; the message names found and expected."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason  # in CamelCase, for a condition


class CacheDamaged(CacheRefused):
    """A published cache lacks objects that its manifest lists, or holds others; they may be restored."""


@dataclass(frozen=True)
class PublishedManifest:
    """A manifest where readers find it."""

    manifest: CacheManifest
    sha256: str  # of its bytes


@dataclass(frozen=True)
class PublicationStep:
    """How far a publication is."""

    objects: int
    objects_total: int
    size_bytes: int = 0
    published: PublishedManifest | None = None  # with the last step


def publication_steps(
    store: ObjectStore, staged: CacheKeys, check: Check, leftovers: str, *, verify_published: bool = False
) -> Iterator[PublicationStep]:
    """Publishes a staged cache, one object a step; yields nothing where it is neither staged nor published.

    `check` sees the manifest before anything is copied; `leftovers` is the prefix that is emptied in the end. With
    `verify_published` a cache that was published before is taken only where its objects are those of its manifest.
    Raises CacheRefused, CacheDamaged of what was published before, and StoreError: go through it again.
    """
    published = read_manifest(store, staged.published)
    if published is None:
        found = _read_manifest(store, staged)
        if found is None:
            return
        manifest, data = found
        check(manifest)
        objects, size_bytes = manifest.objects, 0
        for number, item in enumerate(objects, 1):
            _publish_object(store, staged, item)
            size_bytes += item.size
            yield PublicationStep(number, len(objects), size_bytes)
        store.create(staged.published.manifest, data)
        published = read_manifest(store, staged.published)  # an equal build's, where that was faster
        if published is None:
            raise ObjectNotFound(f"{store.url}/{staged.published.manifest} was removed while it was published")
    else:
        check(published.manifest)
        if verify_published:
            yield from _verify(store, published.manifest)
    total = len(published.manifest.objects)
    while portion := [info.key for info in islice(store.list(leftovers), PORTION)]:
        for key in portion:
            store.delete(key)
        yield PublicationStep(total, total, published.manifest.size_bytes)
    yield PublicationStep(total, total, published.manifest.size_bytes, published)


def publish_staged(store: ObjectStore, build: BuildKeys, digest: str) -> PublishedManifest | None:
    """Publishes a staged cache at once, for whoever built it alone; returns None where there is nothing to publish."""
    staged = build.staged(digest)
    steps = list(publication_steps(store, staged, lambda manifest: None, staged.prefix))
    return steps[-1].published if steps else None


def read_manifest(store: ObjectStore, keys: CacheKeys) -> PublishedManifest | None:
    """Returns a manifest with the SHA-256 of its bytes, None where there is none; raises CacheRefused for a bad one."""
    found = _read_manifest(store, keys)
    return None if found is None else PublishedManifest(found[0], sha256_hex(found[1]))


def _read_manifest(store: ObjectStore, keys: CacheKeys) -> tuple[CacheManifest, bytes] | None:
    where = f"{store.url}/{keys.manifest}"
    try:
        data = store.get(keys.manifest, max_bytes=MAX_MANIFEST_BYTES)
        if is_bloated(data):
            text = f"{where} holds more than {MAX_CONTAINERS} lists and objects or {MAX_VALUES} values"
            raise CacheRefused("BadManifest", f"{text}; build fewer routes into one cache")
        manifest = parse_cache_manifest(data)
    except ObjectNotFound:
        return None
    except (ObjectCorrupt, ValidationError) as error:
        faults = f"{error.error_count()} faults" if isinstance(error, ValidationError) else str(error)
        raise CacheRefused("BadManifest", f"{where} is not a cache manifest: {faults}") from error
    _check_own(manifest, keys, where)
    return manifest, data


def _check_own(manifest: CacheManifest, keys: CacheKeys, where: str) -> None:
    """Raises CacheRefused unless the manifest is of this very digest and names objects of this cache alone."""
    computed = digest_of(manifest)
    if not manifest.digest == computed == keys.digest:
        raise CacheRefused(
            "DigestMismatch",
            f"{where}: found digest {manifest.digest}, expected {keys.digest}; source, collections, config and version "
            f"that it records give {computed}",
        )
    own, seen = keys.published.prefix, set[str]()
    for item in manifest.objects:
        name = item.key.removeprefix(own)
        if name == item.key or not (name == "routes.parquet" or name.startswith(_FOLDERS)) or item.key in seen:
            raise CacheRefused(
                "BadManifest", f"{where}: found object {item.key[:200]!r}, expected each object once, below {own}"
            )
        seen.add(item.key)


def _publish_object(store: ObjectStore, staged: CacheKeys, item: StoredObject) -> None:
    if _fault(store, item) == "":  # by an earlier try
        return
    source = staged.as_staged(item.key)
    info = store.head(source)
    if info is None:
        raise CacheRefused("ObjectMissing", f"{store.url}/{source} is missing; the manifest names {item.size} bytes")
    if info.size != item.size:
        raise CacheRefused("ObjectMismatch", f"{store.url}/{source}: found {info.size} bytes, expected {item.size}")
    store.copy(source, item.key, etag=info.etag)
    if fault := _fault(store, item):
        store.delete(item.key)
        raise CacheRefused("ObjectMismatch", f"{store.url}/{source}: {fault}")


def _verify(store: ObjectStore, manifest: CacheManifest) -> Iterator[PublicationStep]:
    """Asks for every object of a published cache, one a step; raises CacheDamaged in the end.

    An object is read where the store keeps a SHA-256 of others and none of it: it was written after the publication.
    """
    objects, size_bytes, by_key, unattested = manifest.objects, 0, dict[str, str](), list[StoredObject]()
    for number, item in enumerate(objects, 1):
        info = store.attest(item.key)
        if fault := _difference(item, info):
            by_key[item.key] = fault
        elif info is not None and not info.sha256:
            unattested.append(item)
        size_bytes += item.size
        yield PublicationStep(number, len(objects), size_bytes)
    if len(unattested) + len(by_key) < len(objects):
        for item in unattested:
            if fault := _difference_in_bytes(store, item):
                by_key[item.key] = fault
            yield PublicationStep(len(objects), len(objects), size_bytes)
    if by_key:
        missing = sum(fault == NO_OBJECT for fault in by_key.values())
        first = "; ".join(f"{store.url}/{key}: {fault}" for key, fault in list(by_key.items())[:SHOWN_FAULTS])
        more = f" and {len(by_key) - SHOWN_FAULTS} more" if len(by_key) > SHOWN_FAULTS else ""
        text = f"{len(by_key)} of {len(objects)} objects ({missing} missing): {first}{more}"
        raise CacheDamaged("ObjectMissing" if missing else "ObjectMismatch", text)


def _fault(store: ObjectStore, item: StoredObject) -> str:
    """Returns what is wrong with a published object, "" where it is what the manifest lists."""
    info = store.attest(item.key)
    known = _difference(item, info)
    return known if known or (info is not None and info.sha256) else _difference_in_bytes(store, item)


def _difference(item: StoredObject, info: ObjectInfo | None) -> str:
    """Returns how an object differs from its entry in the manifest, as far as the store reports it without a read."""
    if info is None:
        return NO_OBJECT
    if info.size != item.size:
        return f"found {info.size} bytes, expected {item.size}"
    return _difference_of_sha256(item, info.sha256 or item.sha256)


def _difference_in_bytes(store: ObjectStore, item: StoredObject) -> str:
    return _difference_of_sha256(item, _read_sha256(store, item))


def _difference_of_sha256(item: StoredObject, sha256: str) -> str:
    return "" if sha256 == item.sha256 else f"found SHA-256 {sha256}, expected {item.sha256}"


def _read_sha256(store: ObjectStore, item: StoredObject) -> str:
    digest = hashlib.sha256()
    for offset in range(0, item.size, CHUNK_BYTES):
        digest.update(store.get_range(item.key, offset, min(CHUNK_BYTES, item.size - offset)))
    return digest.hexdigest()
