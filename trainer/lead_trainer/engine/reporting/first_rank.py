"""Rank 0's reports between steps: the progress writer, the event file and W&B, the console, retention.

Called by `hooks`; nothing in here is a collective, and nothing in here may stop training.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
import torch

from lead_protocol.manifests import CheckpointManifest
from lead_protocol.progress_record import MAX_ADVISORIES, Advisory, CheckpointRef
from lead_trainer.contract.checked_parts import BadPart
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.reports import VALIDATION, Picture, picture_fault
from lead_trainer.contract.results import returned
from lead_trainer.contract.samples import Batch
from lead_trainer.contract.step import StepOutput
from lead_trainer.engine.reporting.attempt_counters import AttemptCounters
from lead_trainer.engine.reporting.progress import ProgressWriter
from lead_trainer.engine.reporting.shown_metrics import chosen_metrics, shown_metrics
from lead_trainer.engine.step.ranking import METRIC_NAME
from lead_trainer.engine.step.recipe_parts import pictures_of
from lead_trainer.engine.step.state import TrainState
from lead_trainer.engine.validation.validation import Validated
from lead_trainer.report.console import EPOCH_DONE
from lead_trainer.report.live import Live
from lead_trainer.report.sinks import Sink

FIRST_PICTURES = 2  # of every epoch, as LEAD draws them

log = structlog.get_logger(__name__)


@dataclass(kw_only=True)
class FirstRank:
    """Everything that rank 0 reports of a stage."""

    recipe: Recipe[Any]
    config: Any
    writer: ProgressWriter
    events: Sink
    counters: AttemptCounters
    after_commit: Callable[[CheckpointManifest], None] = lambda manifest: None
    data_counters: Callable[[], Mapping[str, Any]] = dict  # of cache and loader, by the progress record's names
    advisories: dict[str, Advisory] = field(default_factory=dict)  # the newest of each rule
    live: Live = field(default_factory=Live)
    reported: frozenset[str] = frozenset()  # advice that a person has read before the run began
    _unreported: set[str] = field(default_factory=set)  # metrics whose names no progress record takes

    def report(self, state: TrainState, *, urgent: bool = False, **fields: Any) -> None:
        """Puts the position and `fields` into the progress record."""
        fields |= {"epoch": state.epoch, "step": state.step, **self.data_counters(), **self.counters.reported()}
        best = {"best_metric": state.best_metric, "best_by": state.ranking.metric}
        self.writer.update(urgent=urgent, **best, **fields)

    def advise(self, state: TrainState, advisories: Sequence[Advisory]) -> None:
        """Reports the advice of watch rules, the newest last."""
        for advisory in advisories:
            if advisory.message not in self.reported:
                log.warning(f"advice: {advisory.rule}", epoch=advisory.epoch, message=advisory.message)
            self.advisories.pop(advisory.rule, None)
            self.advisories[advisory.rule] = advisory
        if advisories:
            newest = [advisory.model_dump() for advisory in self.advisories.values()][-MAX_ADVISORIES:]
            self.report(state, urgent=True, advisories=newest)

    def validating(self, state: TrainState) -> Callable[[int, int], None]:
        """Returns a callback that reports each batch of a validation, so that a long one is not taken for a hang."""
        return lambda done, of: self.report(state, phase="Checkpointing", message=f"validation: batch {done} of {of}")

    def validated(self, state: TrainState, found: Validated) -> None:
        """Reports the end of a validation, with its values inside an epoch, and what was left out."""
        if found.nonfinite:
            text = f"the loss of {found.nonfinite} of {found.batches} batches of validation was not finite; "
            text += "val/loss is the mean of the others" if found.values else "this epoch has no val/loss"
            self.advise(state, [Advisory(rule="validation-not-finite", epoch=state.epoch, message=text)])
        for tag, picture in found.pictures.items():
            self.show(tag, picture, state.step)
        if state.step_in_epoch:
            self.events.scalars(found.values, state.step)
            log.info("validated", step=state.step, **found.values)
        self.report(state, phase="Training", message="")

    def scalars(self, state: TrainState, output: StepOutput) -> None:
        """Writes losses and metrics of one step, under the recipe's tags."""
        tags = self.recipe.reports.tags
        values = {tags.scaled + name: one for name, one in output.scaled.items()}
        values |= {tags.parts + name: one for name, one in output.parts.items()}
        values |= {tags.metrics + name: one for name, one in output.metrics.items()}
        self.events.scalars(floats(values), state.step)

    def own_scalars(self, values: Mapping[str, float], step: int) -> None:
        """Writes what the recipe reports of a step besides; without what is not finite."""
        for tag, value in returned(self.recipe.name, "reports.figures", values, Mapping).items():
            if not isinstance(tag, str) or not isinstance(value, int | float):
                found = f"{tag!r}: {value!r}"
                raise BadPart(
                    f"recipe {self.recipe.name!r}: reports.figures gives {found}, expected a number by its tag"
                )
        self.events.scalars({tag: value for tag, value in values.items() if math.isfinite(value)}, step)

    def picture(self, state: TrainState, batch: Batch, output: StepOutput) -> None:
        """Shows the recipe's pictures of a step where they are due."""
        every = self.config.pictures_every_steps
        if not every or (state.step % every and state.step_in_epoch > FIRST_PICTURES):
            return
        for tag, picture in pictures_of(self.recipe, self.config, batch, output.outputs).items():
            self.show(tag, picture, state.step)

    def show(self, tag: str, picture: Picture, step: int) -> None:
        """Shows a picture (H, W, 3) or a clip (T, H, W, 3); what is neither is a warning, once a tag."""
        if not (fault := picture_fault(picture)):
            show = self.events.clip if picture.ndim == 4 else self.events.picture
            show(tag, picture, step)
        elif tag not in self._unreported:
            self._unreported.add(tag)
            log.warning("a picture is not shown", tag=tag, found=fault,
                        expected="uint8 (H, W, 3), or (T, H, W, 3) for a clip")  # fmt: skip

    def histograms(self, state: TrainState) -> None:
        """Writes how weights and gradients are spread, by parameter."""
        for name, parameter in state.model.named_parameters():
            self.events.histogram(f"weights/{name}", parameter.detach(), state.step)
            if parameter.grad is not None:
                self.events.histogram(f"gradients/{name}", parameter.grad, state.step)

    def committed(self, state: TrainState, manifest: CheckpointManifest, manifest_key: str) -> None:
        """Shows the checkpoint, and counts and reports it."""
        self.counters.committed()
        self.after_commit(manifest)
        self.live.committed(manifest.epoch, manifest.step)
        self.events.upload()
        reference = checkpoint_reference(manifest, manifest_key)
        self.report(state, urgent=True, phase="Training", message="", checkpoint=reference.model_dump())
        log.info("checkpoint committed", step=manifest.step, epoch=manifest.epoch, size_bytes=reference.size_bytes)

    def epoch_done(self, state: TrainState, values: Mapping[str, float], epochs: int) -> None:
        """Reports the means of an epoch, and its validation."""
        self.events.scalars(
            {
                name if name.startswith(VALIDATION) else f"{self.recipe.reports.tags.epoch}{name}": value
                for name, value in values.items()
            },
            state.step,
        )
        log.info(EPOCH_DONE, epoch=state.epoch, of=epochs, step=state.step, skipped=state.skipped_steps,
                 best=state.best_metric, best_epoch=state.ranking.best.epoch or None,
                 epochs_since_best=state.ranking.best.epochs_since, **values)  # fmt: skip
        self.report(state, urgent=True, loss=values.get("loss"), metrics=self._few(values))

    def _few(self, values: Mapping[str, float]) -> dict[str, float]:
        if unreported := sorted({name for name in values if not METRIC_NAME.fullmatch(name)} - self._unreported):
            self._unreported.update(unreported)
            log.warning("metrics are left out of the progress record: a name is up to 64 of A-Z a-z 0-9 _ . / -",
                        names=unreported)  # fmt: skip
        return shown_metrics(values, chosen_metrics(self.recipe))


def checkpoint_reference(manifest: CheckpointManifest, manifest_key: str) -> CheckpointRef:
    """Returns the fields of the progress record about a committed checkpoint."""
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
