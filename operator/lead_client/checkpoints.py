"""Checkpoints of one stage instance in a store: what is there, and its files in a folder, checked by their digests."""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from lead_client.errors import CheckpointCorrupt, ClientError, NoCheckpoint
from lead_protocol.object_keys import InstanceKeys, position_of
from lead_protocol.store.object_store import ObjectCorrupt, ObjectNotFound, ObjectStore

if TYPE_CHECKING:
    from lead_protocol.manifests import CheckpointManifest

CONFIG = "config.json"


@dataclass(frozen=True)
class Instance:
    """One stage and seed of a run, and where its objects lie."""

    stage: str
    seed: int
    store: ObjectStore
    keys: InstanceKeys
    events: Path | None = None  # a folder with its event files; None: in the store


@dataclass(frozen=True, repr=False)
class Checkpoint:
    """One committed checkpoint."""

    stage: str
    seed: int
    manifest: "CheckpointManifest"
    store: ObjectStore

    @property
    def epoch(self) -> int:
        """Epochs completed."""
        return self.manifest.epoch

    @property
    def step(self) -> int:
        """Optimizer steps completed."""
        return self.manifest.step

    @property
    def final(self) -> bool:
        """Whether its stage ends with it."""
        return self.manifest.final

    @property
    def metrics(self) -> Mapping[str, float]:
        """Means of the epoch, and its validation."""
        return self.manifest.metrics

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(stored.size for stored in self.manifest.files.values())

    @property
    def weights_name(self) -> str:
        """The file with the weights that were validated; raises NoCheckpoint for the report of an evaluation."""
        if not (name := self.manifest.weights_name):
            raise NoCheckpoint(f"stage {self.stage} ends with the report of an evaluation, which has no weights")
        return name

    def download(self, folder: str | Path, *, weights_only: bool = False) -> Path:
        """Writes the files to a folder, all or none; returns the folder.

        Raises CheckpointCorrupt where a file is not what the manifest names, ClientError where one of that name lies
        there already. `weights_only`: the model and its config.json, not the optimizer.
        """
        target = Path(folder)
        names = {self.weights_name, CONFIG} if weights_only else set(self.manifest.files)
        target.mkdir(parents=True, exist_ok=True)
        if taken := sorted(name for name in names if (target / name).exists()):
            raise ClientError(f"{target} has a file {taken[0]} already; choose another folder")
        with tempfile.TemporaryDirectory(prefix=".lead-", dir=target) as scratch:
            for name in sorted(names):
                if Path(name).name != name or name in (".", ".."):
                    raise CheckpointCorrupt(f"{self}: {name!r} is no plain file name")
                stored = self.manifest.files[name]
                try:
                    self.store.download(stored.key, Path(scratch) / name, size=stored.size, sha256=stored.sha256)
                except (ObjectCorrupt, ObjectNotFound) as error:
                    raise CheckpointCorrupt(f"{self}: {error}; nothing was written") from error
            for name in sorted(names):
                shutil.move(Path(scratch) / name, target / name)
        return target

    def __repr__(self) -> str:
        """Returns which one it is."""
        return f"<{self}>"

    def __str__(self) -> str:
        """Returns which one it is, for messages."""
        return f"checkpoint of epoch {self.epoch}, step {self.step}, of stage {self.stage}, seed {self.seed}"


def checkpoints_of(instance: Instance, *, best: bool = False) -> list[Checkpoint]:
    """Returns the checkpoints of a stage instance that are not quarantined, newest or best first."""
    from lead_protocol.checkpoint_retention import ranked
    from lead_protocol.manifests import read_checkpoint_manifest

    store, keys = instance.store, instance.keys
    bad = {position_of(info.key) for info in store.list(keys.quarantine_prefix)}
    named = [(position, info.key) for info in store.list(keys.manifests_prefix) if (position := position_of(info.key))]
    found = []
    for position, key in sorted(named, reverse=True):
        if position in bad:
            continue
        try:
            found.append(read_checkpoint_manifest(store, key))
        except ObjectNotFound:  # removed since it was listed: newer ones are kept
            continue
        except (ValidationError, ObjectCorrupt) as error:
            raise CheckpointCorrupt(f"{store.url}/{key} is no manifest: {str(error).splitlines()[0]}") from error
    return [Checkpoint(instance.stage, instance.seed, each, store) for each in (ranked(found) if best else found)]
