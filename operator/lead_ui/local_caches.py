"""Caches on this machine: beside the raw data that runs name in their config, and below the folder that is shown."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from lead_protocol.manifests import MAX_MANIFEST_BYTES, CacheManifest, parse_cache_manifest
from lead_protocol.object_keys import LOCAL_NAMESPACE, CacheKeys, caches_prefix
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import StoreError
from lead_ui.cache_manifest import with_manifest
from lead_ui.model import Cache, CacheRow, RunKey
from lead_ui.source import SourceUnavailable

FOLDER = "cache"  # in the folder of the raw data
_ROOT = "_root"  # ends the key of a config that names a folder of raw data


def found_caches(root: Path, configs: Iterable[Mapping[str, object]]) -> list[tuple[FolderStore, str]]:
    """Returns store and digest of each cache."""
    folders = {Path(str(value)) for config in configs for key, value in config.items()
               if key.endswith(_ROOT) and isinstance(value, str) and value}  # fmt: skip
    stores = {folder.resolve() / FOLDER for folder in (*folders, root)} | {root}
    return [found for store in sorted(stores) for found in _caches_in(store)]


def _caches_in(folder: Path) -> Iterator[tuple[FolderStore, str]]:
    published = folder / caches_prefix(LOCAL_NAMESPACE)
    if published.is_dir():
        for path in sorted(published.glob("*/MANIFEST.json")):
            yield FolderStore(folder), path.parent.name


def cache_row(store: FolderStore, digest: str, used_by: tuple[str, ...]) -> CacheRow:
    """Returns the line of one cache."""
    key = RunKey(LOCAL_NAMESPACE, digest)
    try:
        manifest = _manifest(store, digest)
    except SourceUnavailable as error:
        return CacheRow(key=key, phase="Unknown", reason=str(error), digest=digest)
    return _row(key, manifest, used_by)


def read_cache(store: FolderStore, digest: str, used_by: tuple[str, ...]) -> Cache:
    """Returns one cache; raises SourceUnavailable for a manifest that cannot be read."""
    manifest = _manifest(store, digest)
    return with_manifest(Cache(row=_row(RunKey(LOCAL_NAMESPACE, digest), manifest, used_by)), manifest)


def _row(key: RunKey, manifest: CacheManifest, used_by: tuple[str, ...]) -> CacheRow:
    routes = manifest.routes
    return CacheRow(
        key=key,
        recipe=manifest.recipe,
        phase="Ready",
        routes=f"{routes.kept}/{routes.total}",
        samples=manifest.samples,
        size_bytes=manifest.size_bytes,
        shards=f"{len(manifest.shards)}/{len(manifest.shards)}",
        digest=manifest.digest,
        used_by=used_by,
    )


def _manifest(store: FolderStore, digest: str) -> CacheManifest:
    key = CacheKeys(LOCAL_NAMESPACE, digest).manifest
    try:
        return parse_cache_manifest(store.get(key, max_bytes=MAX_MANIFEST_BYTES))
    except (StoreError, ValidationError) as error:
        raise SourceUnavailable(f"the manifest of the cache {digest[:12]} cannot be read: {error}") from error
