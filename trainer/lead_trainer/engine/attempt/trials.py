"""What is measured on a stage without training it: a sweep of the learning rate, and a validation of given weights."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lead_trainer.engine.attempt.given import Attempt
from lead_trainer.engine.attempt.lr_finder import Curve, sweep_stage
from lead_trainer.engine.attempt.memory import MemoryPlan
from lead_trainer.engine.attempt.stage import opened_dataset, stage_of, start_of, validator_of
from lead_trainer.engine.attempt.start import Start, build_state
from lead_trainer.engine.loop import Stage
from lead_trainer.engine.samples.stage_samples import StageSamples, limited
from lead_trainer.engine.step.state import TrainState
from lead_trainer.engine.validation.validation import Validated
from lead_trainer.errors import StopRequested


@dataclass(frozen=True)
class OpenedStage:
    """A stage at its step 0, of which no checkpoint is read."""

    attempt: Attempt
    stage: Stage
    start: Start
    samples: StageSamples

    def state(self) -> TrainState:
        """Returns a state with the weights that the attempt begins with."""
        return build_state(self.start, None, self.stage.device, self.stage.dtype)

    def validated(self, state: TrainState, report: Callable[[int, int], None] = lambda done, of: None) -> Validated:
        """Validates a state's weights; raises StopRequested where somebody stops it. There must be a split."""
        validator = validator_of(self.attempt, self.samples.validation, self.stage)
        assert validator is not None, "has_validation is asked before"
        found = validator.run(state, report, lambda: self.attempt.stop.raised)
        if found is None:
            raise StopRequested("stopped on request while measuring; nothing is committed")
        return found

    @property
    def has_validation(self) -> bool:
        """Whether the config has a validation split."""
        return self.samples.validation is not None and self.attempt.recipe.validation is not None


def lr_curve(attempt: Attempt, least: float, most: float, steps: int) -> Curve:
    """Sweeps the learning rate on fresh weights, which are then thrown away; nothing is committed."""
    with opened_stage(attempt) as opened:
        return sweep_stage(opened.stage, opened.state(), least, most, steps)


def validation_of_weights(attempt: Attempt) -> Validated | None:
    """Validates the weights that the attempt begins with; returns None without a split."""
    with opened_stage(attempt) as opened:
        return opened.validated(opened.state()) if opened.has_validation else None


@contextmanager
def opened_stage(attempt: Attempt) -> Iterator[OpenedStage]:
    """Opens a stage at its step 0 and closes its data again."""
    with opened_dataset(attempt) as dataset:
        memory_plan = MemoryPlan(attempt.config.saves_memory)
        samples = limited(attempt.recipe, attempt.config, dataset)
        stage = stage_of(attempt, samples, memory_plan)
        yield OpenedStage(attempt, stage, start_of(attempt, samples, dataset, memory_plan), samples)
