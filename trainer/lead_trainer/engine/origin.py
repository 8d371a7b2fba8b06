"""A checkpoint of another run as a beginning: found by its name, checked like one's own, never quarantined from here.

Called by `start` when an instance has no checkpoint of its own and its job names where to go on from; and by `resume`
for the weights of a named checkpoint.
"""

from pathlib import Path

import structlog

from lead_protocol.job import InitFrom
from lead_protocol.manifests import CheckpointManifest
from lead_protocol.object_keys import InstanceKeys, position_of
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.engine.manifest_listing import manifest_keys
from lead_trainer.engine.patience import Patience
from lead_trainer.engine.quarantine import find_lasting_fault, quarantined_positions, was_missing
from lead_trainer.engine.resume import Found, none_valid, of_checkpoint
from lead_trainer.errors import BadConfig, NoValidCheckpoint

log = structlog.get_logger(__name__)


def sound_origin(store: ObjectStore, origin: InitFrom, epochs: int, folder: Path, patience: Patience) -> Found:
    """Returns the checkpoint that `origin` names, or the newest sound one of its instance; its files in `folder`.

    Raises NoValidCheckpoint when there is none, BadConfig when it has nothing left to train.
    """
    keys = _instance(origin)
    bad = patience.call(lambda: quarantined_positions(store, keys.quarantine_prefix))
    seen, first = [], ""  # first: what is wrong with the newest
    for key in patience.call(lambda: manifest_keys(store, keys.manifests_prefix)):
        if not of_checkpoint(key, origin.checkpoint_prefix):
            continue
        seen.append(key)
        if position_of(key) in bad and not patience.call(was_missing, store, keys.quarantine_prefix, key):
            continue
        fault, manifest, digest = find_lasting_fault(store, keys, key, folder, patience)
        if fault is None and manifest is not None and _lies_below(manifest, origin.checkpoint_prefix):
            if manifest.epoch >= epochs:
                raise BadConfig(
                    f"checkpoint.from {key} has trained {manifest.epoch} epochs, and the stage asks for {epochs}; "
                    "name an earlier checkpoint or raise the stage's epochs"
                )
            return Found(key, digest, manifest)
        reason = str(fault or "its objects lie elsewhere")
        log.error("checkpoint.from names a corrupt checkpoint", manifest=key, reason=reason)
        first = first or reason
    wanted = origin.checkpoint_prefix or keys.prefix
    if not seen:
        raise NoValidCheckpoint(
            f"checkpoint.from {wanted}: found no checkpoint; name one that stands in a run's status"
        )
    raise NoValidCheckpoint(f"checkpoint.from {wanted}: {none_valid(len(seen), first)}")


def _lies_below(manifest: CheckpointManifest, checkpoint_prefix: str) -> bool:
    return all(stored.key.startswith(checkpoint_prefix) for stored in manifest.files.values())


def _instance(origin: InitFrom) -> InstanceKeys:
    parts = origin.manifests_prefix.split("/")
    if len(parts) != 6 or parts[0] != "runs" or "-s" not in parts[3]:
        raise BadConfig(f"the job names {origin.manifests_prefix!r}, which is no prefix of a run's manifests")
    stage, seed = parts[3].rsplit("-s", 1)
    return InstanceKeys(parts[1], parts[2], stage, int(seed))
