"""Which checkpoints are spoiled: the check of one manifest against its objects, and the record of the verdict.

A quarantine record is create-only and lies beside the manifest, never instead of it: nothing is deleted, and a person
can see what was found. Called by `resume` and `checkpoint`; a store that does not answer is never a reason.
"""

import json
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from lead_protocol.manifests import CheckpointManifest, parse_checkpoint_manifest, sha256_hex
from lead_protocol.object_keys import InstanceKeys, position_of
from lead_protocol.store.object_store import ObjectCorrupt, ObjectNotFound, ObjectStore


def count_quarantined(store: ObjectStore, keys: InstanceKeys, step: int) -> int:
    """Returns the first q at which a manifest of `step` may be committed."""
    found = [position_of(info.key) for info in store.list(keys.quarantine_prefix)]
    return max((position[1] + 1 for position in found if position and position[0] == step), default=0)


def quarantined_positions(store: ObjectStore, quarantine_prefix: str) -> set[tuple[int, int]]:
    """Returns (step, q) of every manifest found spoiled before."""
    return {position for info in store.list(quarantine_prefix) if (position := position_of(info.key))}


def quarantine(store: ObjectStore, keys: InstanceKeys, manifest_key: str, reason: str, attempt: int) -> None:
    """Records that a manifest must not be used; a record that is there already stands."""
    position = position_of(manifest_key)
    if position is None:
        return
    record = {
        "manifest_key": manifest_key,
        "reason": reason,
        "attempt": attempt,
        "found_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    store.create(keys.quarantine(*position), json.dumps(record, indent=1).encode())


def find_fault(
    store: ObjectStore, keys: InstanceKeys, key: str, folder: Path, max_bytes: int
) -> tuple[str | None, CheckpointManifest | None, str]:
    """Checks one manifest and streams its objects to `folder`; returns (fault or None, manifest, its SHA-256)."""
    try:
        data = store.get(key, max_bytes=max_bytes)
        manifest = parse_checkpoint_manifest(data)
    except (ObjectCorrupt, ObjectNotFound) as error:
        return str(error), None, ""
    except ValidationError as error:
        return f"{key} is no manifest: {str(error.errors()[0]['msg'])[:200]}", None, ""
    fault = _foreign(manifest, keys, key) or fetch_fault(store, manifest, folder)
    return fault, manifest, sha256_hex(data)


def fetch_fault(store: ObjectStore, manifest: CheckpointManifest, folder: Path) -> str | None:
    """Downloads a manifest's objects to `folder`; returns what is wrong with the first bad one, or None."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, stored in manifest.files.items():
        if Path(name).name != name or name in (".", ".."):
            return f"{name!r} is no plain file name"
        try:
            store.download(stored.key, folder / name, size=stored.size, sha256=stored.sha256)
        except (ObjectCorrupt, ObjectNotFound) as error:
            return str(error)
    return None


def _foreign(manifest: CheckpointManifest, keys: InstanceKeys, key: str) -> str | None:
    if (manifest.run_uid, manifest.stage, manifest.seed) != (keys.uid, keys.stage, keys.seed):
        return f"it belongs to {manifest.run_uid}/{manifest.stage}-s{manifest.seed}, expected {keys.prefix}"
    position = position_of(key)
    if position is None or position[0] != manifest.step:
        return f"it says step {manifest.step}, but its key is {key}"
    outside = [stored.key for stored in manifest.files.values() if not stored.key.startswith(keys.prefix)]
    return f"it names {outside[0]}, outside {keys.prefix}" if outside else None
