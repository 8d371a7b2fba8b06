"""Which checkpoint of the run beside them weights are of: what it logged, and the data it was trained on."""

from pathlib import Path

from lead_protocol.manifests import CheckpointManifest
from lead_trainer.engine.checkpoints.instances import instance_manifests, instances
from lead_trainer.local.store import NAMESPACE, PRIVATE_FOLDER, UID, store_in


def checkpoint_of(weights: Path, sha256: str) -> CheckpointManifest | None:
    """Returns the checkpoint that holds a file of these bytes, None where no run beside the weights has one."""
    if not (weights.parent / PRIVATE_FOLDER / "runs").is_dir():
        return None
    store = store_in(weights.parent)
    for keys in instances(store, NAMESPACE, UID):
        for manifest in instance_manifests(store, keys):
            if any(stored.sha256 == sha256 for stored in manifest.files.values()):
                return manifest
    return None
