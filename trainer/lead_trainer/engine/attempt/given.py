"""What one rank of an attempt is given, before anything is opened."""

from dataclasses import dataclass, field
from typing import Any

from lead_protocol.job import TrainJob
from lead_trainer.contract.recipe import Recipe
from lead_trainer.engine.attempt.location import RunLocation
from lead_trainer.engine.checkpoints.retry_budget import STOP_MARGIN, RetryBudget
from lead_trainer.engine.group.ddp import Group
from lead_trainer.engine.group.stop import StopFlag
from lead_trainer.engine.reporting.progress import ProgressWriter


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Everything that one rank of an attempt was given."""

    job: TrainJob
    location: RunLocation
    group: Group
    stop: StopFlag
    recipe: Recipe[Any]
    config: Any
    writer: ProgressWriter | None = None  # None on every rank but the first
    budget: RetryBudget = field(init=False)

    def __post_init__(self) -> None:
        """Gives every access of the attempt to its store one budget, whose waits are reported."""
        budget = RetryBudget(
            on_wait=self.report_wait,
            is_stopping=lambda: self.stop.raised,
            stop_s=STOP_MARGIN * self.job.grace_period_s,
        )
        object.__setattr__(self, "budget", budget)

    @property
    def rank_batch(self) -> int:
        """Samples of one rank in a batch of all ranks."""
        batch_size: int = self.config.batch_size
        return batch_size // self.group.world.world_size

    def report_wait(self, message: str) -> None:
        """Shows in the progress record that the attempt waits for its store."""
        if self.writer is not None:
            self.writer.update(urgent=True, message=message)
