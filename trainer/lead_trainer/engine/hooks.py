"""What happens between two steps: counting, validating, saving, stopping; rank 0 also reports.

`loop` calls one method after every step and one after every epoch; each rank calls them in the same order, because some
of them are collectives.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NoReturn

import structlog
import torch

from lead_protocol.job import CheckpointPolicy
from lead_protocol.manifests import CheckpointManifest
from lead_protocol.progress_record import Advisory
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.reports import RunFigures, WatchRule
from lead_trainer.contract.samples import Batch, Samples
from lead_trainer.contract.step import StepOutput
from lead_trainer.data.loader import Loader
from lead_trainer.engine.checkpoints.commit import Checkpointer
from lead_trainer.engine.group.ddp import Group
from lead_trainer.engine.group.stop import StopFlag
from lead_trainer.engine.reporting.first_rank import FirstRank
from lead_trainer.engine.reporting.loading_statistics import LoadingStatistics
from lead_trainer.engine.reporting.perf import StepClock
from lead_trainer.engine.reporting.progress import Pace
from lead_trainer.engine.reporting.progress_block import progress_block
from lead_trainer.engine.reporting.watch import ENGINE_RULES, YOUNG, advise, one_line
from lead_trainer.engine.step.epoch_plan import StagePlan
from lead_trainer.engine.step.state import TrainState, means, merged
from lead_trainer.engine.validation.validation import Validator
from lead_trainer.errors import StopRequested, TrainerError
from lead_trainer.report.live import EpochSoFar

MOST_SKIPPED_IN_A_ROW = 50
GIB = 2**30
_NAMED_SAMPLES = 16

log = structlog.get_logger(__name__)


class Diverged(TrainerError):
    """The loss has not been finite for many steps in a row."""


@dataclass(frozen=True)
class Step:
    """What one optimizer step was, on one rank."""

    outputs: Sequence[StepOutput]  # of each micro-batch; the last one with its predictions
    batch: Batch  # the last micro-batch
    gradient_norm: float  # before clipping

    @property
    def loss(self) -> float:
        """The mean loss."""
        return sum(float(output.loss.detach()) for output in self.outputs) / len(self.outputs)


@dataclass(kw_only=True)
class Hooks:
    """The engine between two steps of one rank."""

    group: Group
    recipe: Recipe[Any]
    config: Any
    policy: CheckpointPolicy
    plan: StagePlan
    epochs: int
    loader: Loader
    samples: Samples
    checkpointer: Checkpointer
    stop: StopFlag
    clock: StepClock
    data: LoadingStatistics
    validator: Validator | None = None
    rules: Sequence[WatchRule] = ENGINE_RULES
    first: FirstRank | None = None  # None on every other rank
    pace: Pace = field(default_factory=Pace)

    @contextmanager
    def opened(self, batches: Iterator[Batch]) -> Iterator[Iterator[Batch]]:
        """Counts the time that the loop waits for batches, and lets go of the loader's threads at the end."""
        try:
            yield self.clock.waiting_for(batches)
        finally:
            if self.first is not None:
                self.first.live.end()
            batches.close()  # type: ignore[attr-defined]  # a generator

    def after_start(self, state: TrainState) -> None:
        """Reports that training begins, unless a stop was requested while loading.

        A stage that ended early and has no checkpoint that is marked as its end gets one: nothing else of it is left to
        do.
        """
        self.pace.mark(state.step)
        if self.first is not None:
            self.first.report(state, urgent=True, phase="Training", message="")
        if state.ranking.stops_early and state.epoch < self.epochs and not self.checkpointer.stage_is_closed:
            self._save(state, at_once=True, final=True)
        self._stop_if_asked(state)

    def after_step(self, state: TrainState, step: Step) -> None:
        """Counts, reports, and, inside an epoch, validates, saves or stops where that is due."""
        self.stop.trained()
        self.clock.step_done()
        if not math.isfinite(step.gradient_norm):
            self._name_bad_samples(state, step)
        rate = self.pace.mark(state.step)
        if self.first is not None:
            self.first.counters.step(self.clock.last_step_s)
            self._report_step(self.first, state, step, rate)
        if state.step_in_epoch < self.plan.epoch(state.epoch).steps:
            if self._due(self.config.validate_every_steps, state.step):
                self._validate(state)
            if self._due(self.policy.every_steps, state.step):
                self._save(state)
            self._stop_if_asked(state)

    def after_epoch(self, state: TrainState) -> None:
        """Sums the epoch up, validates and saves where that is due, and stops if asked."""
        self.stop.trained()  # by an earlier attempt, where this one begins with an epoch's end
        values = means(merged(self.group.gather(state.totals.as_pairs())))
        self.data.take(self.group.sums(self.data.row()))
        due = self._due(self.config.validate_every_epochs, state.epoch) or state.epoch == self.epochs
        if due or self._due(self.config.validate_every_steps, state.step):
            values |= self._validate(state)
        better = state.ranking.judge(values, state.epoch, state.step)
        young = {} if state.average is None else {YOUNG: state.average.first_share}
        pace = self.clock.epoch_done(self.plan.epoch(state.epoch - 1).accumulate)
        state.history.append({**values, **young, **pace})
        if self.first is not None:
            self.first.epoch_done(state, values, self.epochs)
            self.first.advise(state, advise(self.rules, state.history, state.epoch))
        last = state.epoch == self.epochs or state.ranking.stops_early
        by_steps = self._due(self.policy.every_steps, state.step)
        if last or by_steps or self._due(self.policy.every_epochs, state.epoch) or (better and self.policy.on_best):
            self._save(state, at_once=last, final=last)
        if not last:
            self._stop_if_asked(state)
        elif state.epoch < self.epochs and self.first is not None:
            log.info("stopped early", epoch=state.epoch, epochs_since_best=state.ranking.best.epochs_since)

    def _validate(self, state: TrainState) -> dict[str, float]:
        if self.validator is None:
            return {}
        first = self.first
        report = first.validating(state) if first is not None else lambda done, of: None
        found = self.validator.run(state, report, lambda: self.stop.raised)
        self.pace.restart()
        if found is None:
            self._stop_before_judging(state)
        if first is not None:
            first.validated(state, found)
        return found.values

    def _name_bad_samples(self, state: TrainState, step: Step) -> None:
        """Logs the samples of a skipped step; an fp16 overflow with a finite loss is handled by the loss scale."""
        finite = [bool(torch.isfinite(output.loss.detach())) for output in step.outputs]
        ours = self._samples_of(state, [not one for one in finite]) if not all(finite) else []
        gathered = [name for names in self.group.gather(ours) for name in names]
        if not gathered and state.scaler.is_enabled():
            named, whose = [], "the loss scale was too large"
        elif gathered:
            named, whose = gathered, "their loss is not finite"
        else:
            everyone = self.group.gather(self._samples_of(state, [True] * len(finite)))
            named, whose = [name for names in everyone for name in names], "their gradients are not finite"
        if self.first is not None and named:
            log.warning("step skipped", step=state.step, reason=whose, samples=named[:_NAMED_SAMPLES],
                        of_samples=len(named), skipped=state.skipped_steps)  # fmt: skip
            text = f"step {state.step} was skipped, {whose}: {', '.join(named[:4])}" + (" …" if named[4:] else "")
            advisory = Advisory(rule="not-finite", epoch=state.epoch, message=one_line(text))
            self.first.advise(state, [advisory])
        if state.skipped_in_a_row >= MOST_SKIPPED_IN_A_ROW:
            raise Diverged(
                f"gradients were not finite for {MOST_SKIPPED_IN_A_ROW} steps in a row, up to step {state.step}; "
                "lower lr, set grad_clip_norm, or start from an earlier checkpoint"
            )

    def _samples_of(self, state: TrainState, chosen: Sequence[bool]) -> list[str]:
        """Returns the names of this rank's samples in the chosen micro-batches of the step just done."""
        plan = self.plan.epoch(state.epoch)
        begin = plan.first_batch(state.step_in_epoch - 1)
        rows = islice(self.loader.sample_indices(state.epoch, begin), len(chosen) // plan.parts)
        indices = [int(index) for row in rows for index in row]
        size = len(indices) // len(chosen)
        return [self._name(index) for place, index in enumerate(indices) if chosen[place // size]]

    def _name(self, index: int) -> str:
        return self.samples.name(index)

    def _stop_if_asked(self, state: TrainState) -> None:
        """Takes in a commit beside the steps that has ended on any rank, and stops where any rank was asked to."""
        asked, ended = float(self.stop.raised), float(self.checkpointer.has_ended)
        stops, committed, *counted = self.group.sums([asked, ended, *self.data.row()])
        self.data.take(counted)
        if committed:
            self._finish_commit(state)
        if stops:
            self._stop(state)

    def _stop_before_judging(self, state: TrainState) -> NoReturn:
        """Ends the attempt within a validation; the next one trains no step again.

        It makes up for the validation of an epoch's end; one that was due within the epoch is left out.
        """
        if state.step_in_epoch == 0:
            state.reopen_epoch(self.plan.epoch(state.epoch - 1).steps)
        self._stop(state)

    def _stop(self, state: TrainState) -> NoReturn:
        self.checkpointer.budget.hurry()
        self._finish_commit(state)
        if self.checkpointer.committed_step != state.step and state.step > 0:
            self._save(state, at_once=True)
        if state.step == 0:
            raise StopRequested("stopped on request before the first step; there is nothing to commit yet")
        raise StopRequested(f"stopped on request after step {state.step}; a checkpoint of it is committed")

    def _save(self, state: TrainState, *, at_once: bool = False, final: bool = False) -> None:
        """Commits the state, beside the next steps unless it has to be `at_once`; first ends the commit before."""
        self._finish_commit(state)
        if self.config.async_checkpoints and not at_once:
            with self._halted():
                self.checkpointer.begin(state)
            return
        self._report_halt(state)
        with self._halted():
            manifest = self.checkpointer.commit(state, final=final)
        self._report_commit(state, manifest)

    def _finish_commit(self, state: TrainState) -> None:
        """Waits for the commit beside the steps, where one is under way, and reports it; raises what it failed by."""
        if not self.checkpointer.is_under_way:
            return
        ended = self.checkpointer.has_ended
        if not ended:
            self._report_halt(state)
        with nullcontext() if ended else self._halted():
            manifest = self.checkpointer.finish()
        self._report_commit(state, manifest)

    @contextmanager
    def _halted(self) -> Iterator[None]:
        with self.first.counters.waiting_for_checkpoint() if self.first is not None else nullcontext():
            yield
        self.pace.restart()

    def _report_halt(self, state: TrainState) -> None:
        if self.first is not None:
            self.first.report(state, urgent=True, phase="Checkpointing")

    def _report_commit(self, state: TrainState, manifest: CheckpointManifest) -> None:
        if self.first is not None:
            self.first.committed(state, manifest, self.checkpointer.manifest_key)

    def _report_step(self, first: FirstRank, state: TrainState, step: Step, rate: float | None) -> None:
        plan, steps = self.plan.epoch(state.epoch), self.plan.steps
        due = state.step % self.config.log_scalars_frequency == 0
        if due:
            first.scalars(state, step.outputs[-1])
            loading = self.loader.stage_scalars()
            figures = self._figures(state, step, loading)
            first.own_scalars(self.recipe.reports.figures(self.config, figures, step.batch), state.step)
            first.events.scalars({**loading, **self.data.scalars()}, state.step)
        if self._due(self.config.histograms_every_steps, state.step):
            first.histograms(state)
        first.picture(state, step.batch, step.outputs[-1])
        if self._due(self.config.console_every_steps, state.step):
            named = self.recipe.reports.stage
            stage = named(self.config, state.epoch) if named else ""
            log.info(progress_block(state, step.outputs[-1], self.clock.last_step_s, self.epochs, plan.steps, stage))
        fields: dict[str, Any] = {}
        if rate is not None:
            batch_size = self.config.batch_size * plan.accumulate
            fields = {"samples_per_s": rate * batch_size, "eta_s": max(0, steps - state.step) / rate}
            if due or state.step_in_epoch == 1:
                loss = means(state.totals.as_pairs()).get("loss")
                fields |= {} if loss is None else {"loss": loss}
        if first.live.due():
            at = {
                "epoch": state.epoch + 1,
                "epochs": self.epochs,
                "step": state.step_in_epoch,
                "steps": plan.steps,
            }
            loss = means(state.totals.as_pairs()).get("loss")
            first.live.show(EpochSoFar(**{**at, "loss": loss, **fields}))
        first.report(state, **fields)

    def _figures(self, state: TrainState, step: Step, loading: Mapping[str, float]) -> RunFigures:
        plan, load_ms = self.plan.epoch(state.epoch), loading.get("data/load_ms")
        return RunFigures(
            loss=float(step.outputs[-1].loss.detach()),
            epoch=state.epoch,
            step=state.step,
            steps=self.plan.steps,
            skipped_steps=state.skipped_steps,
            loss_scale=state.scaler.get_scale() if state.scaler.is_enabled() else 1.0,
            gradient_norm=step.gradient_norm,
            rates=state.optimizers.rates(),
            processes=self.group.world.world_size,
            parameters=sum(one.numel() for one in state.model.parameters() if one.requires_grad),
            samples=len(self.samples),
            batches=plan.batches,
            rank_batch=plan.rank_batch,
            loader_threads=self.loader.threads,
            gpu_memory_gib=torch.cuda.max_memory_allocated() / GIB if torch.cuda.is_available() else 0.0,
            load_s=None if load_ms is None else load_ms / 1000 / plan.rank_batch,
        )

    @staticmethod
    def _due(every: int, count: int) -> bool:
        return every > 0 and count % every == 0
