"""What happens between two steps: counting, telling, saving, stopping.

`loop` calls one method after every step and one after every epoch; each rank calls them in the same order, because some
of them are collectives.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
import torch

from lead_protocol.job import CheckpointPolicy
from lead_protocol.manifests import CheckpointManifest
from lead_protocol.progress_record import CheckpointRef
from lead_trainer.engine.commit import Checkpointer
from lead_trainer.engine.ddp import Group
from lead_trainer.engine.progress import Mailbox, Pace
from lead_trainer.engine.retention import Retention
from lead_trainer.engine.state import TrainState, means, merged
from lead_trainer.engine.stop import StopFlag
from lead_trainer.errors import StopRequested, TrainerError
from lead_trainer.recipes.recipe import Batch, Recipe, StageShape, StepOutput
from lead_trainer.report.sinks import Sink

MOST_SKIPPED_IN_A_ROW = 50
_PROGRESS_METRICS = 16
_STOP_MARGIN = 0.8  # of the grace period may be spent waiting for the store

log = structlog.get_logger(__name__)


class Diverged(TrainerError):
    """The loss has not been finite for many steps in a row."""


@dataclass
class FirstRank:
    """What only rank 0 does: the mailbox, event file and W&B, retention, and a view of a commit for people."""

    mailbox: Mailbox
    events: Sink
    retention: Retention | None  # None in a pod
    after_commit: Callable[[CheckpointManifest], None] = lambda manifest: None
    cache_counters: Callable[[], Mapping[str, Any]] = dict


@dataclass
class Hooks:
    """The engine between two steps of one rank."""

    group: Group
    recipe: Recipe
    config: Any
    shape: StageShape
    policy: CheckpointPolicy
    steps_per_epoch: int
    epochs: int
    checkpointer: Checkpointer
    stop: StopFlag
    grace_period_s: float
    first: FirstRank | None = None  # None on every other rank
    pace: Pace = field(default_factory=Pace)

    def after_start(self, state: TrainState) -> None:
        """Tells that training begins, unless a stop was asked for while loading."""
        self.pace.mark(state.step)
        self._tell(state, urgent=True, phase="Training", message="")
        self._stop_if_asked(state)

    def after_step(self, state: TrainState, batch: Batch, output: StepOutput) -> None:
        """Counts, tells, and, inside an epoch, saves or stops where that is due."""
        if state.skipped_in_a_row >= MOST_SKIPPED_IN_A_ROW:
            raise Diverged(
                f"gradients were not finite for {MOST_SKIPPED_IN_A_ROW} steps in a row, up to step {state.step}; "
                "lower lr, set grad_clip_norm, or start from an earlier checkpoint"
            )
        rate = self.pace.mark(state.step)
        if self.first is not None:
            self._scalars(state, output)
            self._picture(state, batch, output)
            self._tell(state, rate=rate)
        if state.step_in_epoch < self.steps_per_epoch:
            if self.policy.every_steps and state.step % self.policy.every_steps == 0:
                self._save(state)
            self._stop_if_asked(state)

    def after_epoch(self, state: TrainState) -> None:
        """Sums the epoch up, saves where that is due, and stops if asked."""
        epoch_means = means(merged(self.group.gather(state.totals.as_pairs())))
        if self.first is not None:
            self.first.events.scalars({f"epoch/{name}": value for name, value in epoch_means.items()}, state.step)
            log.info("epoch done", epoch=state.epoch, of=self.epochs, step=state.step, loss=epoch_means.get("loss"))
        every = self.policy.every_epochs
        by_steps = self.policy.every_steps and state.step % self.policy.every_steps == 0
        if state.epoch == self.epochs or by_steps or (every and state.epoch % every == 0):
            self._save(state)
        self._tell(state, urgent=True, loss=epoch_means.get("loss"), metrics=_few(epoch_means))
        if state.epoch < self.epochs:
            self._stop_if_asked(state)

    def _stop_if_asked(self, state: TrainState) -> None:
        if not self.group.any(self.stop.raised):
            return
        if self.checkpointer.committed_step != state.step and state.step > 0:
            self.checkpointer.patience.total_s = self.grace_period_s * _STOP_MARGIN
            self._save(state)
        raise StopRequested(f"stopped on request after step {state.step}; a checkpoint of it is committed")

    def _save(self, state: TrainState) -> None:
        self._tell(state, urgent=True, phase="Checkpointing")
        manifest = self.checkpointer.commit(state)
        if self.first is not None:
            self.first.after_commit(manifest)
            if self.first.retention is not None:
                self.first.retention.apply()
            self.first.events.upload()
            reference = checkpoint_reference(manifest, self.checkpointer.manifest_key)
            self._tell(state, urgent=True, phase="Training", message="", checkpoint=reference.model_dump())
            log.info("checkpoint committed", step=manifest.step, epoch=manifest.epoch, size_bytes=reference.size_bytes)
        self.pace.restart()

    def _scalars(self, state: TrainState, output: StepOutput) -> None:
        assert self.first is not None
        if state.step % max(self.shape.scalars_every_steps, 1):
            return
        rates = {f"debug/lr_{index}": group["lr"] for index, group in enumerate(state.optimizer.param_groups)}
        self.first.events.scalars(
            {
                **{f"unscaled_loss/{name}": value for name, value in floats(output.parts).items()},
                **{f"metric/{name}": value for name, value in floats(output.metrics).items()},
                **rates,
                "debug/loss": float(output.loss.detach()),
                "debug/epoch": state.epoch,
                "debug/num_gradient_steps": state.step,
                "debug/gradient_steps_skipped": state.skipped_steps,
                "debug/grad_scale": state.scaler.get_scale() if state.scaler.is_enabled() else 1.0,
                "debug/finished_percentage": 100.0 * state.step / (self.epochs * self.steps_per_epoch),
            },
            state.step,
        )

    def _picture(self, state: TrainState, batch: Batch, output: StepOutput) -> None:
        every = self.shape.pictures_every_steps
        if not every or (state.step % every and state.step_in_epoch > 1):
            return
        picture = self.recipe.picture(self.config, batch, output.outputs)
        if picture is not None and self.first is not None:
            self.first.events.picture("prediction", picture, state.step)

    def _tell(self, state: TrainState, *, urgent: bool = False, rate: float | None = None, **fields: Any) -> None:
        if self.first is None:
            return
        steps = self.epochs * self.steps_per_epoch
        fields |= {"epoch": state.epoch, "step": state.step, **self.first.cache_counters()}
        if rate is not None:
            fields |= {"samples_per_s": rate * self.shape.batch_size, "eta_s": (steps - state.step) / rate}
            totals = means(state.totals.as_pairs()) if urgent or self._is_scalar_step(state) else {}
            fields |= {"loss": totals["loss"]} if "loss" in totals else {}
        self.first.mailbox.update(urgent=urgent, best_metric=state.best_metric, **fields)

    def _is_scalar_step(self, state: TrainState) -> bool:
        return state.step_in_epoch == 1 or state.step % max(self.shape.scalars_every_steps, 1) == 0


def checkpoint_reference(manifest: CheckpointManifest, manifest_key: str) -> CheckpointRef:
    """Returns what the progress record tells of a committed checkpoint."""
    return CheckpointRef(
        step=manifest.step,
        epoch=manifest.epoch,
        manifest_key=manifest_key,
        saved_at=manifest.saved_at,
        size_bytes=sum(stored.size for stored in manifest.files.values()),
    )


def floats(values: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """Returns scalars as Python numbers, without those that are not finite."""
    numbers = {name: float(value.detach()) for name, value in values.items()}
    return {name: number for name, number in numbers.items() if math.isfinite(number)}


def _few(values: Mapping[str, float]) -> dict[str, float]:
    return {name: values[name] for name in sorted(values)[:_PROGRESS_METRICS] if name != "loss"}
