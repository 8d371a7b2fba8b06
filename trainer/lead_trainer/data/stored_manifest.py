"""The manifest of a complete cache, as readers find it; needs neither torch nor numpy."""

from pydantic import ValidationError

from lead_protocol.manifests import MAX_MANIFEST_BYTES, CacheManifest, sha256_hex
from lead_protocol.object_keys import CacheKeys
from lead_protocol.store.object_store import ObjectNotFound, ObjectStore
from lead_trainer.errors import BadData

TRIES = 3  # of reading a manifest
# A DatasetCache that is created again takes the objects that are there, so a damaged one has to go first.
REBUILD = "restore it, or delete the cache's objects (DatasetCache with spec.retain Delete) and build it again"


def stored_manifest(store: ObjectStore, keys: CacheKeys, sha256: str = "") -> CacheManifest | None:
    """Returns a complete cache's manifest, None where there is none; raises BadData where it is damaged.

    Also where it is another than the one with that SHA-256, unless that is empty.
    """
    key = keys.manifest
    for left in reversed(range(TRIES)):
        try:
            data = store.get(key, max_bytes=MAX_MANIFEST_BYTES)
            manifest = CacheManifest.model_validate_json(data)
            break
        except ObjectNotFound:
            return None
        except ValidationError as error:
            if not left:  # otherwise it may have been corrupted in transit
                raise BadData(
                    f"{store.url}/{key} is not a cache manifest: {error.error_count()} faults; build again"
                ) from error
    if sha256 and (found := sha256_hex(data)) != sha256:
        raise BadData(
            f"{store.url}/{key} has SHA-256 {found}, expected {sha256}: it was replaced after the cache was published; "
            + REBUILD
        )
    if manifest.digest != keys.digest:
        raise BadData(f"{store.url}/{key} is the manifest of {manifest.digest}; it was copied to the wrong place")
    return manifest
