"""A checkpoint as all ranks live it: agree on the state, let rank 0 commit it, learn how that ended.

Ranks compare a hash of their weights first, which also catches silent corruption. Rank 0 alone talks to the store; its
error becomes the error of every rank, so that a group ends in one exit code.

`commit` does it all while training waits. `begin` copies the state to host memory and does the same beside the next
steps, in a thread of each rank; the ranks learn together, at a step's end, that it has ended, and call `finish`.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from lead_protocol.manifests import CheckpointManifest
from lead_protocol.store.object_store import ObjectCorrupt, ObjectStore
from lead_trainer.contract.files import CheckpointAt
from lead_trainer.engine.checkpoints.background import Background
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
from lead_trainer.engine.checkpoints.retention import Retention
from lead_trainer.engine.checkpoints.retry_budget import RetryBudget
from lead_trainer.engine.checkpoints.snapshot import MODEL, HostCopies, Snapshot, parts_of
from lead_trainer.engine.group.agreement import done_by_first
from lead_trainer.engine.group.ddp import Group
from lead_trainer.engine.step.state import TrainState, means, merged
from lead_trainer.errors import TrainerError

LEAVE_S = 8.0  # that a rank which failed waits for a store that is away, and for ranks that may be gone

log = structlog.get_logger(__name__)


class ReplicaDivergence(TrainerError):
    """Two ranks hold different weights after the same step."""


@dataclass
class Checkpointer:
    """Commits the state of a group, at most one at a time; every method is called by every rank."""

    group: Group
    store: ObjectStore
    identity: CheckpointIdentity
    names: Callable[[CheckpointAt], Mapping[str, str]]  # file names by part
    config: Mapping[str, Any]
    scratch: Path
    budget: RetryBudget
    retention: Retention | None = None  # None in a pod, and on every rank but the first
    parent_sha256: str | None = None
    committed_step: int = -1
    manifest_key: str = ""
    manifest: CheckpointManifest | None = None
    _beside: tuple[Group, HostCopies] | None = None  # what a commit beside the steps needs, from the first one on
    _under_way: Background[Committed] | None = field(default=None, repr=False)

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

    @property
    def is_under_way(self) -> bool:
        """Whether a commit was begun that `finish` has not returned or raised."""
        return self._under_way is not None

    @property
    def has_ended(self) -> bool:
        """Whether a commit is under way that has come to its end on this rank."""
        return self._under_way is not None and self._under_way.ended

    def commit(self, state: TrainState, *, final: bool = False) -> CheckpointManifest:
        """Commits `state` and returns its manifest; raises ReplicaDivergence, Fenced or a StoreError on all ranks."""
        assert not self.is_under_way, "commits follow each other"
        self.group.share_buffers(state.model)
        snapshot = Snapshot(parts_of(state), *self._loop_and_metrics(state), final)
        committed = self._committed(self.group, snapshot, keeps_its_weights=False)
        self._note(committed.key, committed.sha256, committed.manifest)
        if committed.adopted and committed.manifest.parameters_sha256 != parameters_sha256(snapshot.weights):
            self._reload(state, committed.manifest)
        return committed.manifest

    def begin(self, state: TrainState) -> None:
        """Copies `state` to host memory and begins to commit the copy; `finish` returns the result."""
        assert not self.is_under_way, "commits follow each other"
        if self._beside is None:
            self._beside = self.group.beside(), HostCopies(self.group.device)
        group, copies = self._beside
        self.group.share_buffers(state.model)
        parts = parts_of(state)
        if not self.group.world.is_first:
            parts = {MODEL: parts[MODEL]}  # what ranks compare
        snapshot = Snapshot(copies.of(parts), *self._loop_and_metrics(state))
        self._under_way = Background(
            lambda: self._committed(group, snapshot, keeps_its_weights=True), f"commit of step {state.step}"
        )

    def finish(self) -> CheckpointManifest:
        """Waits for the commit under way and returns its manifest; raises what `commit` raises."""
        under_way, self._under_way = self._under_way, None
        assert under_way is not None, "one was begun"
        committed = under_way.result()
        self._note(committed.key, committed.sha256, committed.manifest)
        return committed.manifest

    def leave(self) -> None:
        """Lets the commit under way come to its end after an error of a step, which is what the attempt ends by."""
        if self._under_way is None:
            return
        self.budget.begin(LEAVE_S)
        self._under_way.wait(LEAVE_S if self.group.world.world_size > 1 else None)
        if self._under_way.error is not None:
            log.warning("the commit under way has failed as well", error=str(self._under_way.error))

    def close(self) -> None:
        """Lets go of the memory for copies."""
        if self._beside is not None:
            self._beside[1].close()

    def _loop_and_metrics(self, state: TrainState) -> tuple[Any, Mapping[str, float]]:
        """Returns the state of the loop with the totals of all ranks, and the metrics of these weights."""
        pairs = merged(self.group.gather(state.totals.as_pairs()))
        known = self.manifest.metrics if self.manifest is not None and self.committed_step == state.step else {}
        loop = state.loop_state(pairs if state.step_in_epoch else {})
        return loop, known | means(pairs) | state.fresh_validation()

    def _committed(self, group: Group, snapshot: Snapshot, *, keeps_its_weights: bool) -> Committed:
        """Returns the commit of a snapshot once the ranks of `group` agree on it."""
        parameters = parameters_sha256(snapshot.weights)
        hashes = group.gather(parameters)
        if len(set(hashes)) > 1:
            raise ReplicaDivergence(
                f"after step {snapshot.loop.step} the ranks hold different weights: "
                + ", ".join(f"rank {rank} {value[:8]}" for rank, value in enumerate(hashes))
            )
        return Committed.from_json(
            done_by_first(group, lambda: self._written(snapshot, parameters, keeps_its_weights).as_json())
        )

    def _written(self, snapshot: Snapshot, parameters: str, keeps_its_weights: bool) -> Committed:
        self.budget.begin()
        folder, loop = self.scratch / "staging", snapshot.loop
        names = self.names(checkpoint_at(loop.epoch, loop.step_in_epoch, loop.step))
        try:
            # a full disk is waited for, as a full store is
            files = self.budget.call(stage_files, snapshot, names, self.config, folder)
            committed = commit_checkpoint(
                self.store,
                self.identity,
                {"step": loop.step, "epoch": loop.epoch, "step_in_epoch": loop.step_in_epoch},
                files,
                names,
                parameters=parameters,
                parent_sha256=self.parent_sha256,
                metrics=snapshot.metrics,
                budget=self.budget,
                scratch=self.scratch,
                final=snapshot.final,
                keeps_its_weights=keeps_its_weights,
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if self.retention is not None:
            self.retention.apply()
        return committed

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
