"""Which checkpoints are corrupt: the check of one manifest against its objects, and the record of the verdict.

A quarantine record is create-only and lies beside the manifest, never instead of it: nothing is deleted, and a person
can see what was found. Called by `resume` and `checkpoint`; a store that does not answer is never a reason, and an
object counts as missing only when it is so twice. Where objects that were missing are back, `readmit` undoes it.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from lead_protocol.manifests import (
    MAX_CHECKPOINT_MANIFEST_BYTES,
    CheckpointManifest,
    parse_checkpoint_manifest,
    sha256_hex,
)
from lead_protocol.object_keys import InstanceKeys, position_of
from lead_protocol.store.object_store import ObjectCorrupt, ObjectNotFound, ObjectStore
from lead_trainer.engine.checkpoints.retry_budget import RetryBudget

RECHECK_S = 2.0  # until missing objects are checked a second time
MAX_QUARANTINE_BYTES = 64 * 1024
LOOP = "loop"  # the part of a checkpoint with the loop's position


@dataclass(frozen=True)
class Fault:
    """What is wrong with a checkpoint; `missing`: an object of it is not there, which may come right again."""

    reason: str
    missing: bool = False

    def __str__(self) -> str:
        return self.reason


def count_quarantined(store: ObjectStore, keys: InstanceKeys, step: int) -> int:
    """Returns the first q at which a manifest of `step` may be committed."""
    found = [position_of(info.key) for info in store.list(keys.quarantine_prefix)]
    return max((position[1] + 1 for position in found if position and position[0] == step), default=0)


def quarantined_positions(store: ObjectStore, quarantine_prefix: str) -> set[tuple[int, int]]:
    """Returns (step, q) of every manifest found corrupt before."""
    return {position for info in store.list(quarantine_prefix) if (position := position_of(info.key))}


def quarantine(store: ObjectStore, keys: InstanceKeys, manifest_key: str, fault: Fault, attempt: int) -> None:
    """Records that a manifest must not be used; a record that is there already stands."""
    position = position_of(manifest_key)
    if position is None:
        return
    record = {
        "manifest_key": manifest_key,
        "reason": fault.reason,
        "missing": fault.missing,
        "attempt": attempt,
        "found_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    store.create(keys.quarantine(*position), json.dumps(record, indent=1).encode())


def was_missing(store: ObjectStore, quarantine_prefix: str, manifest_key: str) -> bool:
    """Returns whether a quarantined checkpoint was quarantined because objects of it were missing."""
    record_key = quarantine_prefix + manifest_key.rsplit("/", 1)[-1]
    try:
        record = json.loads(store.get(record_key, max_bytes=MAX_QUARANTINE_BYTES))
    except (ObjectNotFound, ObjectCorrupt, ValueError):
        return False
    return isinstance(record, dict) and record.get("missing") is True


def readmit(store: ObjectStore, keys: InstanceKeys, manifest_key: str) -> str:
    """Commits the manifest of a quarantined checkpoint again, under the next free number of its step; returns its key.

    The record stays for people. Both manifests name the same objects, which retention keeps as long as one of them.
    """
    position = position_of(manifest_key)
    assert position is not None, "it was listed as a manifest"
    data = store.get(manifest_key, max_bytes=MAX_CHECKPOINT_MANIFEST_BYTES)
    number = count_quarantined(store, keys, position[0])
    while not store.create(key := keys.manifest(position[0], number), data):
        number += 1
    return key


def find_lasting_fault(
    store: ObjectStore, keys: InstanceKeys, key: str, folder: Path, budget: RetryBudget
) -> tuple[Fault | None, CheckpointManifest | None, str]:
    """As `find_fault`, waiting for a store that is away; missing objects are checked again after a pause."""
    found = budget.call(find_fault, store, keys, key, folder, MAX_CHECKPOINT_MANIFEST_BYTES)
    if found[0] is None or not found[0].missing:
        return found
    budget.pause(RECHECK_S)
    return budget.call(find_fault, store, keys, key, folder, MAX_CHECKPOINT_MANIFEST_BYTES)


def is_listed(store: ObjectStore, keys: InstanceKeys, manifest_key: str) -> bool:
    """Returns whether a manifest is still there: retention may have removed it since it was listed."""
    return any(info.key == manifest_key for info in store.list(keys.manifests_prefix))


def find_fault(
    store: ObjectStore, keys: InstanceKeys, key: str, folder: Path, max_bytes: int
) -> tuple[Fault | None, CheckpointManifest | None, str]:
    """Checks one manifest and streams its objects to `folder`; returns (fault or None, manifest, its SHA-256)."""
    try:
        data = store.get(key, max_bytes=max_bytes)
        manifest = parse_checkpoint_manifest(data)
    except (ObjectCorrupt, ObjectNotFound) as error:
        return Fault(str(error), missing=isinstance(error, ObjectNotFound)), None, ""
    except ValidationError as error:
        return Fault(f"{key} is no manifest: {str(error.errors()[0]['msg'])[:200]}"), None, ""
    fault = _foreign(manifest, keys, key) or _incomplete(manifest) or fetch_fault(store, manifest, folder)
    fault = fault or _other_position(manifest, folder)
    return fault, manifest, sha256_hex(data)


def fetch_fault(store: ObjectStore, manifest: CheckpointManifest, folder: Path) -> Fault | None:
    """Downloads a manifest's objects to `folder`; returns what is wrong with the first bad one, or None."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, stored in manifest.files.items():
        if Path(name).name != name or name in (".", ".."):
            return Fault(f"{name!r} is no plain file name")
        try:
            store.download(stored.key, folder / name, size=stored.size, sha256=stored.sha256)
        except (ObjectCorrupt, ObjectNotFound) as error:
            return Fault(str(error), missing=isinstance(error, ObjectNotFound))
    return None


def _incomplete(manifest: CheckpointManifest) -> Fault | None:
    """Returns what is wrong with the parts of a manifest, where it names any."""
    if not manifest.parts:
        return None
    if lacking := sorted({"model", "optimizer", LOOP} - {part.partition("_")[0] for part in manifest.parts}):
        return Fault(f"it names no file of {lacking[0]}")
    unknown = sorted(name for name in manifest.parts.values() if name not in manifest.files)
    return Fault(f"it names the file {unknown[0]!r}, which is none of the checkpoint's") if unknown else None


def _other_position(manifest: CheckpointManifest, folder: Path) -> Fault | None:
    """Returns what is wrong with the loop's file of a fetched checkpoint: it is none, or of another position."""
    if LOOP not in manifest.parts:
        return None
    name = manifest.parts[LOOP]
    try:
        loop = json.loads((folder / name).read_bytes())
        there = (loop["step"], loop["epoch"], loop["step_in_epoch"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return Fault(f"{name} is no state of a loop: {type(error).__name__} {error}"[:200])
    expected = (manifest.step, manifest.epoch, manifest.step_in_epoch)
    return None if there == expected else Fault(f"{name} is of step and epoch {there}, its manifest of {expected}")


def _foreign(manifest: CheckpointManifest, keys: InstanceKeys, key: str) -> Fault | None:
    if (manifest.run_uid, manifest.stage, manifest.seed) != (keys.uid, keys.stage, keys.seed):
        return Fault(f"it belongs to {manifest.run_uid}/{manifest.stage}-s{manifest.seed}, expected {keys.prefix}")
    position = position_of(key)
    if position is None or position[0] != manifest.step:
        return Fault(f"it states step {manifest.step}, but its key is {key}")
    outside = [stored.key for stored in manifest.files.values() if not stored.key.startswith(keys.prefix)]
    return Fault(f"it names {outside[0]}, outside {keys.prefix}") if outside else None
