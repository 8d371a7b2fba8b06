"""From a job to a state that can train: model, optimizer, and the checkpoint or weights they start from.

Called by `worker` on every rank. Rank 0 chooses the checkpoint; the first rank of each node downloads it.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import torch

from lead_protocol.job import TrainJob
from lead_protocol.manifests import CheckpointManifest
from lead_protocol.store.object_store import ObjectCorrupt, ObjectStore
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.samples import Caches
from lead_trainer.contract.step import Facts
from lead_trainer.engine.attempt.memory import save_memory
from lead_trainer.engine.checkpoints.checkpoint import CheckpointIdentity, parameters_sha256
from lead_trainer.engine.checkpoints.origin import newest_valid_weights, valid_origin
from lead_trainer.engine.checkpoints.quarantine import fetch_fault
from lead_trainer.engine.checkpoints.resume import (
    Found,
    newest_valid,
    refuse_other_run,
    restore,
    saved_loop,
    supersede_all,
)
from lead_trainer.engine.checkpoints.retry_budget import RetryBudget
from lead_trainer.engine.group.agreement import done_by_first
from lead_trainer.engine.group.ddp import Group
from lead_trainer.engine.samples.data_facts import computed_facts, known_facts
from lead_trainer.engine.step.batch_norms import BatchNorms
from lead_trainer.engine.step.clip import Clipper
from lead_trainer.engine.step.compilation import compiled
from lead_trainer.engine.step.ema import WeightAverage
from lead_trainer.engine.step.helper_networks import frozen_helpers
from lead_trainer.engine.step.precision import gradient_scaler
from lead_trainer.engine.step.ranking import Ranking
from lead_trainer.engine.step.recipe_parts import made_model, made_optimizers
from lead_trainer.engine.step.seeding import seed_process
from lead_trainer.engine.step.state import TrainState
from lead_trainer.weights_file import read_weights_file

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a start needs on every rank."""

    job: TrainJob
    recipe: Recipe[Any]
    config: Any
    config_json: Mapping[str, Any]
    gradient_checkpointing: bool
    group: Group
    store: ObjectStore
    identity: CheckpointIdentity
    scratch: Path
    budget: RetryBudget
    ranking: Ranking
    caches: Caches
    initial_weights: Path | None = None


def choose_checkpoint(start: Start) -> Found | None:
    """Returns the checkpoint to resume, the same on every rank, its files in the scratch folder of every node."""
    folder = start.scratch / "resume"
    chosen = done_by_first(start.group, lambda: _choose(start, folder))
    if chosen is None:
        return None
    found = Found(chosen["key"], chosen["sha256"], CheckpointManifest.model_validate(chosen["manifest"]))
    world = start.group.world
    if world.local_rank == 0 and not world.is_first:
        start.budget.begin()
        fault = start.budget.call(lambda: fetch_fault(start.store, found.manifest, folder))
        if fault is not None:
            raise ObjectCorrupt(f"rank {world.rank} read {found.key} otherwise than rank 0 did: {fault}")
    start.group.wait()
    refuse_other_run(found.manifest, start.identity, folder, start.config_json, start.recipe)
    return found


def _choose(start: Start, folder: Path) -> dict[str, Any] | None:
    start.budget.begin()
    if start.job.checkpoint.resume == "Never":
        supersede_all(start.store, start.identity, start.budget)
        return _origin(start, folder)
    found = newest_valid(start.store, start.identity, folder, start.budget)
    if found is None:
        return _origin(start, folder)
    return {"key": found.key, "sha256": found.sha256, "manifest": found.manifest.model_dump(mode="json")}


def _origin(start: Start, folder: Path) -> dict[str, Any] | None:
    if start.job.resume_from is None:
        return None
    found = valid_origin(start.store, start.job.resume_from, start.job.epochs, folder, start.budget)
    return {"key": found.key, "sha256": found.sha256, "manifest": found.manifest.model_dump(mode="json")}


def build_state(start: Start, found: Found | None, device: torch.device, dtype: torch.dtype) -> TrainState:
    """Returns model and optimizer at the checkpoint's position, or at step 0 with fresh or initial weights."""
    config = start.config
    facts = _facts(start, found)
    seed_process(config.seed)
    model = made_model(start.recipe, config, facts)
    if found is None:
        _load_initial_weights(start, model, facts)
    if start.gradient_checkpointing:
        save_memory(start.recipe, model)
    model = model.to(device)
    repeatable = config.deterministic or device.type == "cpu"
    optimizers = made_optimizers(start.recipe, model, config)
    trained = model  # with several optimizers the loop averages gradients: DDP expects those of one backward pass
    if not optimizers.several:
        trained = start.group.wrap(model, sync_batchnorm=config.sync_batchnorm, repeatable=repeatable)
    if config.compile:
        trained = compiled(trained, device)
    state = TrainState(
        model=model,
        trained=trained,
        optimizers=optimizers,
        scaler=gradient_scaler(dtype, device, config.loss_scale),
        clipper=Clipper(config.grad_clip_norm, config.clip_quantile, config.grad_history_length),
        norms=BatchNorms(model),
        ranking=start.ranking,
        average=WeightAverage(model, config.average_decay) if config.average_decay else None,
        facts=facts,
        helpers=frozen_helpers(start.recipe, config, device),
    )
    if found is not None:
        _restore(start, state, found.manifest)
    return state


def _facts(start: Start, found: Found | None) -> Facts:
    """Returns the facts of the data: those of the checkpoint to resume, else what rank 0 computes from the caches."""
    if found is not None:
        return known_facts(start.recipe, saved_loop(found.manifest, start.scratch / "resume").facts)
    computed = done_by_first(start.group, lambda: dict(computed_facts(start.recipe, start.config, start.caches)))
    return known_facts(start.recipe, computed)


def _restore(start: Start, state: TrainState, manifest: CheckpointManifest) -> None:
    folder = start.scratch / "resume"
    restore(state, manifest, folder)
    if not start.group.world.is_first:
        state.begin_epoch()  # rank 0 carries the sums of all ranks
    if parameters_sha256(state.model.state_dict()) != manifest.parameters_sha256:
        raise ObjectCorrupt(f"the weights loaded from step {manifest.step} are not those its manifest names")
    start.group.wait()
    if start.group.world.local_rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
    log.info("resumed", step=state.step, epoch=state.epoch, step_in_epoch=state.step_in_epoch)


def _load_initial_weights(start: Start, model: torch.nn.Module, facts: Facts) -> None:
    path = start.initial_weights
    if start.job.init_from is not None:
        folder = start.scratch / f"init-{start.group.world.rank}"
        start.budget.begin()
        path, _ = newest_valid_weights(start.store, start.job.init_from, start.job.stage, folder, start.budget)
    if path is not None:
        start.recipe.load_initial_weights(model, start.config, facts, read_weights_file(path, "load_file"))
        log.info("initial weights loaded", file=str(path))
