"""Where an attempt keeps things, and what a laptop adds to a pod."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lead_protocol.manifests import CheckpointManifest
from lead_protocol.store.object_store import ObjectStore


@dataclass(frozen=True)
class RunLocation:
    """The stores and folders of an attempt."""

    store: ObjectStore
    scratch: Path  # shared by the ranks of a node
    session_cache: Path | None = None
    termination_log: Path | None = None
    initial_weights: Path | None = None
    dataset_store: ObjectStore | None = None  # where caches are, if elsewhere
    events_folder: Path | None = None  # where event files are written, if not to scratch
    pictures_folder: Path | None = None  # where pictures are written as files too, if anywhere
    reported: frozenset[str] = frozenset()  # advice that a person has read before the run began
    wandb_identity: str = ""  # what W&B knows the run by, where its UID is not unique
    after_commit: Callable[[CheckpointManifest], None] = lambda manifest: None
    removes_old_checkpoints: bool = True  # False in a pod, which may not delete: the operator does it
