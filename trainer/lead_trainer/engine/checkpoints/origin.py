"""A checkpoint that is not the instance's own as a beginning: found by its name, verified, never quarantined from here.

Called by `start` when an instance has no checkpoint of its own: `spec.checkpoint.from` names where to go on from,
`initFrom` of a stage whose weights to begin with.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import structlog

from lead_protocol.job import InitFrom
from lead_protocol.manifests import CheckpointManifest, read_checkpoint_manifest
from lead_protocol.object_keys import InstanceKeys, position_of
from lead_protocol.store.object_store import ObjectCorrupt, ObjectNotFound, ObjectStore
from lead_trainer.engine.checkpoints.manifest_listing import manifest_keys, model_file_name
from lead_trainer.engine.checkpoints.quarantine import (
    RECHECK_S,
    Fault,
    fetch_fault,
    find_lasting_fault,
    quarantined_positions,
    was_missing,
)
from lead_trainer.engine.checkpoints.resume import Found
from lead_trainer.engine.checkpoints.retry_budget import RetryBudget
from lead_trainer.errors import BadConfig, BadData, NoValidCheckpoint, short_checksums

Wanted = TypeVar("Wanted")
Fetch = Callable[[str], tuple[Fault | None, Wanted | None]]  # of a manifest's key: what is wrong, or what was fetched

log = structlog.get_logger(__name__)


def valid_origin(store: ObjectStore, origin: InitFrom, epochs: int, folder: Path, budget: RetryBudget) -> Found:
    """Returns the checkpoint that `origin` names, or the newest valid one of its instance; its files in `folder`.

    Raises NoValidCheckpoint when there is none, BadConfig when it has nothing left to train.
    """
    keys = _instance(origin)

    def fetch(key: str) -> tuple[Fault | None, Found | None]:
        fault, manifest, digest = find_lasting_fault(store, keys, key, folder, budget)
        if fault is not None or manifest is None:
            return fault, None
        if manifest.is_report:
            return Fault("it is the report of an evaluation and holds no state to go on from"), None
        if not _lies_below(manifest, origin.checkpoint_prefix):
            return Fault("its objects lie elsewhere"), None
        return None, Found(key, digest, manifest)

    found = _newest_valid(store, origin, "spec.checkpoint.from", fetch, budget)
    if found.manifest.epoch >= epochs:
        raise BadConfig(
            f"spec.checkpoint.from {found.key} has trained {found.manifest.epoch} epochs, and the stage asks for "
            f"{epochs}; name an earlier checkpoint or raise the stage's epochs"
        )
    return found


def newest_valid_weights(
    store: ObjectStore, origin: InitFrom, stage: str, folder: Path, budget: RetryBudget
) -> tuple[Path, CheckpointManifest]:
    """Downloads the model file of the checkpoint that `stage` begins with; returns its path and the manifest.

    Raises NoValidCheckpoint when there is none.
    """

    def fetch(key: str) -> tuple[Fault | None, tuple[Path, CheckpointManifest] | None]:
        fault, manifest = budget.call(_fetch_model, store, key, folder, origin.checkpoint_prefix)
        if fault is not None and fault.missing:
            budget.pause(RECHECK_S)
            fault, manifest = budget.call(_fetch_model, store, key, folder, origin.checkpoint_prefix)
        if fault is not None or manifest is None:
            return fault, None
        return None, (folder / model_file_name(manifest), manifest)

    return _newest_valid(store, origin, f"spec.stages[{stage}].initFrom", fetch, budget)


def _newest_valid(
    store: ObjectStore, origin: InitFrom, field: str, fetch: Fetch[Wanted], budget: RetryBudget
) -> Wanted:
    """Returns what `fetch` makes of the newest valid checkpoint of those that `origin` names.

    Raises NoValidCheckpoint, which names `field` of the spec, what was found, and what is wrong with the newest.
    """
    wanted = origin.checkpoint_prefix or origin.manifests_prefix
    quarantine_prefix = origin.manifests_prefix.removesuffix("manifest/") + "quarantine/"
    bad = budget.call(lambda: quarantined_positions(store, quarantine_prefix))
    listed = budget.call(lambda: manifest_keys(store, origin.manifests_prefix))
    keys = [key for key in listed if _is_of(key, origin.checkpoint_prefix)]
    first = ""
    for key in keys:
        if position_of(key) in bad and not budget.call(was_missing, store, quarantine_prefix, key):
            continue
        fault, found = fetch(key)
        if fault is None and found is not None:
            return found
        log.error("the checkpoint to begin with is corrupt, trying the next older one", manifest=key, reason=str(fault))
        first = first or str(fault or "")
    if not keys:
        text = "found no checkpoint; name one that a run's status shows, of a stage that has committed one"
        raise NoValidCheckpoint(f"{field} {wanted}: {text}")
    many = "found 1 checkpoint, which is corrupt" if len(keys) == 1 else f"found {len(keys)} checkpoints, all corrupt"
    why = short_checksums(first or "it is quarantined, and the record below quarantine/ gives the reason")
    raise NoValidCheckpoint(f"{field} {wanted}: {many}: {why}; restore its objects, or name another checkpoint")


def _is_of(key: str, checkpoint_prefix: str) -> bool:
    """Returns whether a manifest's key has the step of a checkpoint's data prefix; an empty prefix fits every key."""
    position = position_of(key)
    return not checkpoint_prefix or (position is not None and f"/{position[0]:012d}/" in checkpoint_prefix)


def _fetch_model(
    store: ObjectStore, key: str, folder: Path, checkpoint_prefix: str
) -> tuple[Fault | None, CheckpointManifest | None]:
    try:
        manifest = read_checkpoint_manifest(store, key)
        name = model_file_name(manifest)
    except (ObjectCorrupt, ObjectNotFound) as error:
        return Fault(str(error), missing=isinstance(error, ObjectNotFound)), None
    except (ValueError, BadData) as error:
        return Fault(str(error).splitlines()[0][:200]), None
    if not manifest.files[name].key.startswith(checkpoint_prefix):
        return Fault(f"it names {manifest.files[name].key}, which is of another checkpoint of that step"), None
    return fetch_fault(store, manifest.model_copy(update={"files": {name: manifest.files[name]}}), folder), manifest


def _lies_below(manifest: CheckpointManifest, checkpoint_prefix: str) -> bool:
    return all(stored.key.startswith(checkpoint_prefix) for stored in manifest.files.values())


def _instance(origin: InitFrom) -> InstanceKeys:
    parts = origin.manifests_prefix.split("/")
    if len(parts) != 6 or parts[0] != "runs" or "-s" not in parts[3]:
        raise BadConfig(f"the job names {origin.manifests_prefix!r}, which is no prefix of a run's manifests")
    stage, seed = parts[3].rsplit("-s", 1)
    return InstanceKeys(parts[1], parts[2], stage, int(seed))
