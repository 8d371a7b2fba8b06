"""What is measured on a stage without training it: a sweep of the learning rate, and a validation of given weights."""

from collections.abc import Iterator
from contextlib import contextmanager

from lead_trainer.engine.attempt.given import Attempt
from lead_trainer.engine.attempt.lr_finder import Curve, sweep_stage
from lead_trainer.engine.attempt.memory import MemoryPlan
from lead_trainer.engine.attempt.stage import opened_dataset, stage_of, start_of, validator_of
from lead_trainer.engine.attempt.start import build_state
from lead_trainer.engine.loop import Stage
from lead_trainer.engine.samples.stage_samples import StageSamples, limited
from lead_trainer.engine.step.state import TrainState
from lead_trainer.engine.validation.validation import Validated


def lr_curve(attempt: Attempt, least: float, most: float, steps: int) -> Curve:
    """Sweeps the learning rate on fresh weights, which are then thrown away; nothing is committed."""
    with _fresh(attempt) as (stage, state, _):
        return sweep_stage(stage, state, least, most, steps)


def validation_of_weights(attempt: Attempt) -> Validated | None:
    """Validates the weights that the attempt begins with; returns None without a split."""
    with _fresh(attempt) as (stage, state, samples):
        validator = validator_of(attempt, samples.validation, stage)
        if validator is None:
            return None
        found = validator.run(state)
    assert found is not None  # nobody asks it to stop
    return found


@contextmanager
def _fresh(attempt: Attempt) -> Iterator[tuple[Stage, TrainState, StageSamples]]:
    """Opens a stage with a state at step 0; no checkpoint is read."""
    with opened_dataset(attempt) as dataset:
        memory_plan = MemoryPlan(attempt.config.saves_memory)
        samples = limited(attempt.recipe, attempt.config, dataset)
        stage = stage_of(attempt, samples, memory_plan)
        yield (
            stage,
            build_state(start_of(attempt, samples, dataset, memory_plan), None, stage.device, stage.dtype),
            samples,
        )
