"""The checkpoint manifests of a stage instance, and which file of one holds the weights; needs no torch."""

from lead_protocol.manifests import CheckpointManifest
from lead_protocol.object_keys import position_of
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.errors import BadData


def model_file_name(manifest: CheckpointManifest) -> str:
    """Returns the name of the file with the weights that validation judged; raises BadData when a manifest has none."""
    if manifest.is_report:
        raise BadData("it is the report of an evaluation and holds no weights; name the checkpoint that it measures")
    if manifest.weights_name:
        return manifest.weights_name
    raise BadData(f"the manifest of the checkpoint of step {manifest.step} names no file of its part `model`")


def manifest_keys(store: ObjectStore, manifests_prefix: str) -> list[str]:
    """Returns the keys of all manifests, newest first."""
    named = [(position, info.key) for info in store.list(manifests_prefix) if (position := position_of(info.key))]
    return [key for _, key in sorted(named, reverse=True)]
