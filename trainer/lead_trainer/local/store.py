"""Where a run without a cluster keeps its objects: a store of its own in its logdir."""

from pathlib import Path

from lead_protocol.object_keys import LOCAL_FOLDER, LOCAL_NAMESPACE, LOCAL_UID
from lead_protocol.store.folder import FolderStore

NAMESPACE, UID, STAGE = LOCAL_NAMESPACE, LOCAL_UID, "train"
PRIVATE_FOLDER = LOCAL_FOLDER


def logdirs_of(folder: Path) -> list[Path]:
    """Returns the folders of a local run: its own, else one a seed (`seed_<n>`); none for a run that is not local."""
    seeds = [path for path in sorted(folder.glob("seed_*")) if (path / PRIVATE_FOLDER).is_dir()]
    return [folder] if (folder / PRIVATE_FOLDER).is_dir() else seeds


def store_in(logdir: Path) -> FolderStore:
    """Returns the store of a logdir."""
    return FolderStore(logdir / PRIVATE_FOLDER)
