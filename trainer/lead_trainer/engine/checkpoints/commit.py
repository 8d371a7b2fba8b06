"""A checkpoint as all ranks live it: agree on the state, let rank 0 commit it, learn how that ended.

Ranks compare a hash of their weights first, which also catches silent corruption. Rank 0 alone talks to the store; its
error becomes the error of every rank, so that a group ends in one exit code.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lead_protocol.manifests import CheckpointManifest
from lead_protocol.store.object_store import ObjectCorrupt, ObjectStore
from lead_trainer.contract.files import CheckpointAt
from lead_trainer.engine.checkpoints.checkpoint import (
    CheckpointIdentity,
    Committed,
    checkpoint_at,
    commit_checkpoint,
    parameters_sha256,
    stage_files,
)
from lead_trainer.engine.checkpoints.quarantine import fetch_fault
from lead_trainer.engine.checkpoints.resume import Found, restore
from lead_trainer.engine.checkpoints.retry_budget import RetryBudget
from lead_trainer.engine.group.agreement import done_by_first
from lead_trainer.engine.group.ddp import Group
from lead_trainer.engine.step.state import Pairs, TrainState, means, merged
from lead_trainer.errors import TrainerError


class ReplicaDivergence(TrainerError):
    """Two ranks hold different weights after the same step."""


@dataclass
class Checkpointer:
    """Commits the state of a group; every method is called by every rank."""

    group: Group
    store: ObjectStore
    identity: CheckpointIdentity
    names: Callable[[CheckpointAt], Mapping[str, str]]  # file names by part
    config: Mapping[str, Any]
    scratch: Path
    budget: RetryBudget
    parent_sha256: str | None = None
    committed_step: int = -1
    manifest_key: str = ""
    manifest: CheckpointManifest | None = None

    def resumed_from(self, found: Found) -> None:
        """Notes the checkpoint this attempt starts from: the parent of the next one."""
        self._note(found.key, found.sha256, found.manifest)

    def _note(self, key: str, sha256: str, manifest: CheckpointManifest) -> None:
        self.parent_sha256, self.committed_step = sha256, manifest.step
        self.manifest_key, self.manifest = key, manifest

    @property
    def stage_is_closed(self) -> bool:
        """Whether a checkpoint of this instance is marked as the end of the stage."""
        own = self.manifest_key.startswith(self.identity.keys.manifests_prefix)
        return own and self.manifest is not None and self.manifest.final

    def commit(self, state: TrainState, *, final: bool = False) -> CheckpointManifest:
        """Commits `state` and returns its manifest; raises ReplicaDivergence, Fenced or a StoreError on all ranks."""
        self.group.share_buffers(state.model)
        parameters = parameters_sha256(state.model)
        hashes = self.group.gather(parameters)
        if len(set(hashes)) > 1:
            raise ReplicaDivergence(
                f"after step {state.step} the ranks hold different weights: "
                + ", ".join(f"rank {rank} {value[:8]}" for rank, value in enumerate(hashes))
            )
        pairs = merged(self.group.gather(state.totals.as_pairs()))
        known = self.manifest.metrics if self.manifest is not None and self.committed_step == state.step else {}
        metrics = known | means(pairs) | state.fresh_validation()
        committed = Committed.from_json(
            done_by_first(self.group, lambda: self._commit(state, parameters, pairs, metrics, final).as_json())
        )
        self._note(committed.key, committed.sha256, committed.manifest)
        if committed.adopted and committed.manifest.parameters_sha256 != parameters:
            self._reload(state, committed.manifest)
        return committed.manifest

    def _commit(
        self, state: TrainState, parameters: str, pairs: Pairs, metrics: Mapping[str, float], final: bool
    ) -> Committed:
        self.budget.begin()
        folder = self.scratch / "staging"
        loop = state.loop_state(pairs if state.step_in_epoch else {})
        names = self.names(checkpoint_at(state.epoch, state.step_in_epoch, state.step))
        try:
            files = self.budget.call(
                stage_files, state, names, self.config, loop.model_dump_json(indent=1), folder
            )  # a full disk is waited for, as a full store is
            return commit_checkpoint(
                self.store,
                self.identity,
                {"step": state.step, "epoch": state.epoch, "step_in_epoch": state.step_in_epoch},
                files,
                names,
                parameters=parameters,
                parent_sha256=self.parent_sha256,
                metrics=metrics,
                budget=self.budget,
                scratch=self.scratch,
                final=final,
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _reload(self, state: TrainState, manifest: CheckpointManifest) -> None:
        """Takes over the weights of an older attempt that had committed this step with other bits."""
        folder = self.scratch / f"adopted-{self.group.world.rank}"
        self.budget.begin()
        fault = self.budget.call(lambda: fetch_fault(self.store, manifest, folder))
        if fault is not None:
            raise ObjectCorrupt(f"the adopted checkpoint of step {manifest.step} changed while it was read: {fault}")
        restore(state, manifest, folder)
        if not self.group.world.is_first:
            state.begin_epoch()  # rank 0 carries the sums of all ranks
        shutil.rmtree(folder, ignore_errors=True)
