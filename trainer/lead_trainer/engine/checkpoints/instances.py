"""What a run has in a store: its stage instances, and the checkpoints of one that count."""

import structlog
from pydantic import ValidationError

from lead_protocol.manifests import CheckpointManifest, read_checkpoint_manifest
from lead_protocol.object_keys import InstanceKeys, position_of
from lead_protocol.store.object_store import ObjectCorrupt, ObjectStore
from lead_trainer.engine.checkpoints.manifest_listing import manifest_keys
from lead_trainer.engine.checkpoints.quarantine import quarantined_positions
from lead_trainer.errors import BadData

log = structlog.get_logger(__name__)


def instances(store: ObjectStore, namespace: str, uid: str) -> list[InstanceKeys]:
    """Returns the stage instances of a run that hold anything; raises BadData when there is none."""
    found = instances_there(store, namespace, uid)
    if not found:
        prefix = f"runs/{namespace}/{uid}/"
        raise BadData(f"{store.url}/{prefix} holds no stage of a run; is the namespace or the uid another one?")
    return found


def instances_there(store: ObjectStore, namespace: str, uid: str) -> list[InstanceKeys]:
    """Returns the stage instances of a run that hold anything, none of a run that has not begun."""
    prefix = f"runs/{namespace}/{uid}/"
    names = {info.key.removeprefix(prefix).split("/")[0] for info in store.list(prefix)}
    found = []
    for name in sorted(names):
        stage, _, seed = name.rpartition("-s")
        if stage and seed.isdigit():
            found.append(InstanceKeys(namespace, uid, stage, int(seed)))
    return found


def instance_manifests(store: ObjectStore, keys: InstanceKeys) -> list[CheckpointManifest]:
    """Returns the manifests of an instance that are not known to be corrupt, newest first."""
    bad = quarantined_positions(store, keys.quarantine_prefix)
    named = [key for key in manifest_keys(store, keys.manifests_prefix) if position_of(key) not in bad]
    found = []
    for key in named:
        try:
            found.append(read_checkpoint_manifest(store, key))
        except (ValidationError, ObjectCorrupt) as error:
            log.warning("left out: it is no manifest", manifest=key, error=str(error).splitlines()[0])
    return found
