"""The commit of a checkpoint: data objects first, then one create-only manifest; the manifest is the commit.

Called on rank 0 by `commit.py`, perhaps in a thread, with files that `stage_files` wrote to scratch. Nothing is ever
overwritten: a process killed on any line leaves either the whole checkpoint or some unreferenced objects. A manifest
that is there already is ours (an answer got lost), or a higher attempt's (Fenced), or an older attempt's that finished
late: then it is adopted when its objects verify, unless the new one holds more, and quarantined when they do not.
"""

import hashlib
import io
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import torch

from lead_protocol.manifests import CheckpointManifest, StoredObject, sha256_hex
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.store.object_store import ObjectStore
from lead_protocol.store.partial_file import full_disk_named
from lead_trainer.contract.config_values import near_matches
from lead_trainer.contract.files import CheckpointAt, name_fault, names_by_epoch
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.results import returned
from lead_trainer.engine.checkpoints.attempt_fence import refuse_if_fenced
from lead_trainer.engine.checkpoints.quarantine import (
    LOOP,
    Fault,
    count_quarantined,
    find_lasting_fault,
    is_listed,
    quarantine,
)
from lead_trainer.engine.checkpoints.retry_budget import RetryBudget
from lead_trainer.engine.checkpoints.revision import git_revision
from lead_trainer.engine.checkpoints.snapshot import Snapshot
from lead_trainer.errors import BadConfig


@dataclass(frozen=True)
class CheckpointIdentity:
    """What every manifest of an attempt has in common."""

    keys: InstanceKeys
    attempt: int
    recipe: str
    config_sha256: str
    dataset_digests: tuple[str, ...]
    world_size: int
    parts: int = 1  # in which each batch is cut to fit into memory
    best_by: str = "loss"
    best_is_greatest: bool = False
    dataset_manifests: tuple[str, ...] = ()  # SHA-256 of each dataset's manifest


@dataclass(frozen=True)
class StagedFile:
    """One file of a checkpoint on local disk."""

    path: Path
    size: int
    sha256: str


@dataclass(frozen=True)
class Committed:
    """A manifest that now stands, and whether another attempt wrote it."""

    key: str
    sha256: str
    manifest: CheckpointManifest
    adopted: bool = False

    def as_json(self) -> dict[str, Any]:
        """Returns what the other ranks need to know."""
        manifest = self.manifest.model_dump(mode="json")
        return {"key": self.key, "sha256": self.sha256, "manifest": manifest, "adopted": self.adopted}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Committed":
        """Returns what rank 0 sent."""
        manifest = CheckpointManifest.model_validate(value["manifest"])
        return cls(value["key"], value["sha256"], manifest, value["adopted"])


class _HashingFile(io.RawIOBase):
    """A sink that hashes what passes through it; torch writes its archives front to back."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._hash, self.size = file, hashlib.sha256(), 0
        self.error: OSError | None = None  # of the disk: torch raises something else instead

    def write(self, data: Any, /) -> int:
        self._hash.update(data)
        self.size += len(memoryview(data).cast("B"))
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = error
            raise

    def sha256(self) -> str:
        return self._hash.hexdigest()


def parameters_sha256(weights: Mapping[str, torch.Tensor]) -> str:
    """Returns the SHA-256 over names, shapes and bytes of every parameter and buffer, in order."""
    digest = hashlib.sha256()
    for name, tensor in weights.items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def checkpoint_at(epoch: int, step_in_epoch: int, step: int) -> CheckpointAt:
    """Returns what a checkpoint is named by: as LEAD counts, the epoch just finished or under way, from 0."""
    return CheckpointAt(epoch if step_in_epoch else epoch - 1, step, step_in_epoch)


def file_names(recipe: Recipe[Any], config: Any, at: CheckpointAt, optimizers: Sequence[str] = ()) -> dict[str, str]:
    """Returns the file names of a checkpoint by part; raises BadConfig for two of one name, and one that is no name.

    `optimizers`: the parts of the state of optimizers that have a name; their files are called after the one of
    `optimizer` unless the recipe names others.
    """
    own = returned(recipe.name, "files.names", recipe.files.names(config, at), Mapping)
    known = names_by_epoch(config, at)
    if strange := sorted(map(str, own.keys() - known.keys() - {LOOP, *optimizers})):
        raise BadConfig(
            f"recipe {recipe.name!r}: files.names has a part {strange[0]!r}, expected some of "
            f"{', '.join([*known, *optimizers])}{near_matches(strange[0], list(known))}"
        )
    names = {**known, LOOP: f"loop_{at.epoch:04d}.json", **own}
    for part, name in names.items():
        if fault := name_fault(name):
            raise BadConfig(f"recipe {recipe.name!r}: files.names gives {part} the name {name!r}, which {fault}")
    plain = Path(names["optimizer"])
    for part in optimizers:
        names.setdefault(part, f"{plain.stem}_{part.removeprefix('optimizer_')}{plain.suffix}")
    if len({*names.values(), "config.json"}) <= len(names):
        raise BadConfig(f"recipe {recipe.name!r} gives two parts of a checkpoint the same file name: {names}")
    return names


def stage_files(
    snapshot: Snapshot, names: Mapping[str, str], config: Mapping[str, Any], folder: Path
) -> dict[str, StagedFile]:
    """Writes the files of one checkpoint to `folder`, hashing while writing; returns them by file name.

    Raises StoreFull naming the file for which the disk has no room; may be called again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    staged = {
        names[part]: _write(folder / names[part], lambda sink, p=part: torch.save(snapshot.on_host(p), sink))
        for part in snapshot.parts
    }
    texts = {
        names["skipped"]: str(snapshot.loop.skipped_steps),
        "config.json": json.dumps(config, indent=2, sort_keys=True) + "\n",
        names[LOOP]: snapshot.loop.model_dump_json(indent=1),
    }
    for name, text in texts.items():
        staged[name] = _write(folder / name, lambda sink, t=text: sink.write(t.encode()))
    return staged


def _write(path: Path, write: Any) -> StagedFile:
    with full_disk_named(path), path.open("wb") as file:
        sink = _HashingFile(file)
        try:
            write(sink)
        except RuntimeError as error:
            raise sink.error or error from error
        file.flush()
        os.fsync(file.fileno())
        return StagedFile(path, sink.size, sink.sha256())


def commit_checkpoint(
    store: ObjectStore,
    identity: CheckpointIdentity,
    loop: Mapping[str, int],
    files: Mapping[str, StagedFile],
    names: Mapping[str, str],
    *,
    parameters: str,
    parent_sha256: str | None,
    metrics: Mapping[str, float],
    budget: RetryBudget,
    scratch: Path,
    final: bool = False,
    is_report: bool = False,
    keeps_its_weights: bool = False,
) -> Committed:
    """Uploads the files and commits them; raises Fenced, or a StoreError once the retry budget is spent.

    It stands above a checkpoint of the same step with less information: that an epoch is not validated yet, or that the
    stage goes on where this one is `final`. One that `keeps_its_weights` also stands above one with other weights: the
    steps after it are under way.
    """
    keys, attempt, step = identity.keys, identity.attempt, loop["step"]
    budget.call(lambda: refuse_if_fenced(store, keys, attempt))
    nonce = uuid.uuid4().hex[:12]
    manifest = CheckpointManifest(
        run_uid=keys.uid,
        stage=keys.stage,
        seed=keys.seed,
        attempt=attempt,
        nonce=nonce,
        step=step,
        epoch=loop["epoch"],
        step_in_epoch=loop["step_in_epoch"],
        final=final,
        is_report=is_report,
        parent_sha256=parent_sha256,
        recipe=identity.recipe,
        config_sha256=identity.config_sha256,
        dataset_digests=list(identity.dataset_digests),
        dataset_manifests=list(identity.dataset_manifests),
        world_size=identity.world_size,
        torch_version=str(torch.__version__),
        git_revision=git_revision(),
        micro_batches=identity.parts,
        best_by=identity.best_by,
        best_is_greatest=identity.best_is_greatest,
        parts={part: name for part, name in names.items() if name in files},
        parameters_sha256=parameters,
        files=_upload(store, keys.checkpoint(step, attempt, nonce), files, budget),
        metrics=dict(metrics),
        saved_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
    data = manifest.model_dump_json(indent=1).encode()
    number = budget.call(lambda: count_quarantined(store, keys, step))
    while True:
        key = keys.manifest(step, number)
        if budget.call(store.create, key, data):
            return Committed(key, sha256_hex(data), manifest)
        budget.call(lambda: refuse_if_fenced(store, keys, attempt))
        adopted = _adopt(store, identity, key, budget, scratch)
        if adopted is not None and _completeness(adopted.manifest) >= _completeness(manifest):
            has_ours = adopted.manifest.parameters_sha256 == parameters
            if has_ours or not keeps_its_weights:
                return adopted
        number += 1


def _completeness(manifest: CheckpointManifest) -> tuple[int, bool]:
    return manifest.epoch, manifest.final


def _upload(
    store: ObjectStore, prefix: str, files: Mapping[str, StagedFile], budget: RetryBudget
) -> dict[str, StoredObject]:
    stored = {}
    for name, file in files.items():
        key = prefix + name
        budget.call(store.create_file, key, file.path, sha256=file.sha256)
        stored[name] = StoredObject(key=key, size=file.size, sha256=file.sha256)
    return stored


def _adopt(
    store: ObjectStore, identity: CheckpointIdentity, key: str, budget: RetryBudget, scratch: Path
) -> Committed | None:
    """Returns the checkpoint that stands under `key` when it is valid; else quarantines it and returns None."""
    fault, manifest, digest = find_lasting_fault(store, identity.keys, key, scratch / "adopt", budget)
    if fault is None and manifest is not None:
        return Committed(key, digest, manifest, adopted=True)
    if budget.call(is_listed, store, identity.keys, key):
        budget.call(quarantine, store, identity.keys, key, fault or Fault("unreadable"), identity.attempt)
    return None
