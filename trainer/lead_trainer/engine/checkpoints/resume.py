"""Where an attempt goes on: the newest checkpoint of its own whose every object verifies.

Rank 0 chooses, all ranks load the same files. A corrupt checkpoint is quarantined and the next older one is tried;
where none is valid, those that were quarantined because objects were missing are checked once more, and readmitted if
they are whole; manifests without a valid one among them end the run, never step 0 in silence. Files are unpickled only
after their SHA-256 matched a manifest, and then with `weights_only=True`.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import torch

from lead_protocol.manifests import (
    MAX_CHECKPOINT_MANIFEST_BYTES,
    CheckpointManifest,
    sha256_hex,
)
from lead_protocol.object_keys import position_of
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.training_keys import NOT_LEARNED, key_name
from lead_trainer.engine.checkpoints.checkpoint import CheckpointIdentity
from lead_trainer.engine.checkpoints.manifest_listing import manifest_keys
from lead_trainer.engine.checkpoints.quarantine import (
    LOOP,
    Fault,
    find_fault,
    find_lasting_fault,
    is_listed,
    quarantine,
    quarantined_positions,
    readmit,
    was_missing,
)
from lead_trainer.engine.checkpoints.retry_budget import RetryBudget
from lead_trainer.engine.step.state import LoopState, TrainState
from lead_trainer.errors import BadConfig, NoValidCheckpoint

# Keys of the run, whatever its recipe, that may differ between a checkpoint and the run that resumes it.
RUN_KEYS = frozenset({"load_file", "logdir"})

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Found:
    """A checkpoint that verified."""

    key: str
    sha256: str
    manifest: CheckpointManifest


def newest_valid(store: ObjectStore, identity: CheckpointIdentity, folder: Path, budget: RetryBudget) -> Found | None:
    """Returns the newest valid checkpoint, its files in `folder`; None when none was ever committed.

    Raises NoValidCheckpoint when all that were committed are corrupt.
    """
    keys, corrupt = identity.keys, []
    bad = budget.call(lambda: quarantined_positions(store, keys.quarantine_prefix))
    candidates = budget.call(lambda: manifest_keys(store, keys.manifests_prefix))
    for key in candidates:
        if position_of(key) in bad:
            corrupt.append(key)
            continue
        fault, manifest, digest = find_lasting_fault(store, keys, key, folder, budget)
        if fault is None and manifest is not None:
            return Found(key, digest, manifest)
        corrupt.append(key)
        if budget.call(is_listed, store, keys, key):
            log.error("checkpoint is corrupt, trying the next older one", manifest=key, reason=str(fault))
            budget.call(quarantine, store, keys, key, fault or Fault("unreadable"), identity.attempt)
    for key in corrupt:
        found = _whole_again(store, identity, key, folder, budget)
        if found is not None:
            return found
    if corrupt:
        raise NoValidCheckpoint(
            f"{keys.prefix}: {len(corrupt)} checkpoints were committed, none of them is valid; the reasons are below "
            f"{keys.quarantine_prefix}; if objects are missing, restore them and create a run with checkpoint.from; to "
            "start again from step 0, create a new run"
        )
    return None


def _whole_again(
    store: ObjectStore, identity: CheckpointIdentity, key: str, folder: Path, budget: RetryBudget
) -> Found | None:
    """Returns a checkpoint whose missing objects are back, readmitted; None where it is still corrupt."""
    keys = identity.keys
    if not budget.call(was_missing, store, keys.quarantine_prefix, key):
        return None
    fault, manifest, digest = budget.call(find_fault, store, keys, key, folder, MAX_CHECKPOINT_MANIFEST_BYTES)
    if fault is not None or manifest is None:
        return None
    log.warning("the missing objects of a quarantined checkpoint are back: it is used again", manifest=key)
    return Found(budget.call(readmit, store, keys, key), digest, manifest)


def supersede_all(store: ObjectStore, identity: CheckpointIdentity, budget: RetryBudget) -> None:
    """Sets every earlier checkpoint aside, because the user asked never to resume."""
    keys = identity.keys
    for key in budget.call(lambda: manifest_keys(store, keys.manifests_prefix)):
        fault = Fault(f"superseded by attempt {identity.attempt}: resume is Never")
        budget.call(quarantine, store, keys, key, fault, identity.attempt)


def refuse_other_run(
    manifest: CheckpointManifest,
    identity: CheckpointIdentity,
    folder: Path,
    config: Mapping[str, Any],
    recipe: Recipe[Any],
) -> None:
    """Raises BadConfig naming what differs, when a checkpoint was written by another recipe, config or dataset.

    Keys of `config` that teach nothing may differ.
    """
    free = not_learned(recipe)
    remedy = "restore the old value, choose another logdir, or start again with resume=never"
    if manifest.recipe != identity.recipe:
        raise BadConfig(f"the checkpoint is of recipe {manifest.recipe!r}, this run's is {identity.recipe!r}; {remedy}")
    if manifest.config_sha256 != identity.config_sha256:
        before = json.loads((folder / "config.json").read_text())
        changed, unknown = _differences(_learned(before, free), _learned(config, free))
        if changed:
            shown = ", ".join(changed[:5])
            raise BadConfig(
                f"the checkpoint of step {manifest.step} was written with another config: {shown}; {remedy}"
            )
        if unknown:
            log.warning("the checkpoint is of another version of the trainer, which knew other keys", keys=unknown)
    if manifest.dataset_digests != list(identity.dataset_digests):
        raise BadConfig(
            f"the checkpoint of step {manifest.step} was trained on caches {manifest.dataset_digests}, this run reads "
            f"{list(identity.dataset_digests)}; {remedy}"
        )
    if manifest.world_size != identity.world_size:
        log.warning(
            "the number of processes changed: the resume is exact in state, not in bits",
            before=manifest.world_size,
            now=identity.world_size,
        )


def restore(state: TrainState, manifest: CheckpointManifest, folder: Path) -> None:
    """Loads a verified checkpoint from `folder` into `state`; the next step is the one that would have followed.

    Raises BadConfig naming a part that this run needs and the checkpoint does not have.
    """
    needed = ["model", *state.optimizers.parts().values(), "scaler"]
    needed += ["clipper"] if state.clipper.has_history else []
    needed += ["ema"] if state.average is not None else []
    if lacking := [part for part in needed if part not in manifest.parts]:
        raise BadConfig(f"the checkpoint of step {manifest.step} holds {sorted(manifest.parts)}, but no {lacking[0]!r}")
    saved = {part: load_tensors(folder / manifest.parts[part]) for part in needed}
    loop = saved_loop(manifest, folder)
    state.model.load_state_dict(saved["model"])
    state.optimizers.load_state_dicts(saved)
    state.scaler.load_state_dict(saved["scaler"])
    state.take_loop_state(loop)
    if state.clipper.has_history:
        state.clipper.load_state_dict(saved["clipper"])
    if state.average is not None:
        state.average.load(saved["ema"], loop.average_updates)


def saved_loop(manifest: CheckpointManifest, folder: Path) -> LoopState:
    """Returns the part of a verified checkpoint that is no tensor: position, totals, the facts of the data."""
    return LoopState.model_validate_json((folder / manifest.parts[LOOP]).read_text())


def load_tensors(path: Path) -> Any:
    """Reads a file of tensors whose digest was checked, to host memory; no code in it is run."""
    return torch.load(path, map_location="cpu", weights_only=True)


def not_learned(recipe: Recipe[Any]) -> frozenset[str]:
    """Returns the keys that may differ between a checkpoint and the run that resumes it."""
    engines = {key_name(recipe.config_model, name) for name in NOT_LEARNED & recipe.config_model.model_fields.keys()}
    return RUN_KEYS | engines | recipe.keys.not_learned


def config_digest(config: Mapping[str, Any], free: Collection[str]) -> str:
    """Returns the SHA-256 of those keys of a resolved config that decide what is learned: all but the `free` ones."""
    return sha256_hex(json.dumps(_learned(config, free), sort_keys=True).encode())


def _learned(config: Mapping[str, Any], free: Collection[str]) -> dict[str, Any]:
    """Returns a resolved config without its free keys; those in a section are named by their path."""
    return {
        key: _learned(value, [path.removeprefix(f"{key}.") for path in free if path.startswith(f"{key}.")])
        if isinstance(value, Mapping)
        else value
        for key, value in config.items()
        if key not in free
    }


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> tuple[list[str], list[str]]:
    """Returns what was changed between two resolved configs, and the keys that only one of them has.

    A resolved config has every key its trainer knows, so nobody changed a key that one of them lacks.
    """
    changed: list[str] = []
    unknown = [f"{prefix}{key}" for key in sorted(before.keys() ^ now.keys())]
    for key in sorted(before.keys() & now.keys()):
        old, new = before[key], now[key]
        if isinstance(old, dict) and isinstance(new, dict):
            deeper = _differences(old, new, f"{prefix}{key}.")
            changed, unknown = [*changed, *deeper[0]], [*unknown, *deeper[1]]
        elif old != new:
            changed.append(f"{prefix}{key} was {old!r} and is {new!r}")
    return changed, unknown
