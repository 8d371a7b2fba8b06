"""How an epoch's batches become optimizer steps: accumulation, and the parts a batch is cut into to fit into memory.

    loader batch (batch_size of all ranks) = `parts` micro-batches of equal size
    optimizer step = `accumulate` loader batches; the last step of an epoch takes what is left

Both numbers leave the samples of a step, and so the number of steps, as they are; only `accumulate` is the user's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import torch

from lead_trainer.contract.samples import Batch
from lead_trainer.contract.step import Position
from lead_trainer.errors import BadConfig, BadData


@dataclass(frozen=True)
class EpochPlan:
    """The steps of one epoch, on one rank."""

    batches: int  # of the loader, an epoch
    rank_batch: int  # samples of a batch on this rank
    accumulate: int = 1
    parts: int = 1  # divides rank_batch

    def __post_init__(self) -> None:
        if self.accumulate < 1:
            raise BadConfig(f"gradient_accumulation_steps: found {self.accumulate}, expected at least 1")
        if self.rank_batch % self.parts:
            raise BadConfig(
                f"a batch of {self.rank_batch} samples a process cannot be cut into {self.parts} equal parts"
            )

    @property
    def steps(self) -> int:
        """Optimizer steps an epoch."""
        return -(-self.batches // self.accumulate)

    def first_batch(self, step: int) -> int:
        """Returns the loader batch with which a step of the epoch begins."""
        return step * self.accumulate

    def first_micro_batch(self, step: int) -> int:
        """Returns the number, within the epoch, of a step's first micro-batch: what its randomness depends on."""
        return step * self.accumulate * self.parts

    def batches_in(self, step: int) -> int:
        """Returns how many loader batches a step of the epoch takes."""
        return min(self.accumulate, self.batches - step * self.accumulate)

    def micro_batches_in(self, step: int) -> int:
        """Returns how many micro-batches a step of the epoch takes."""
        return self.batches_in(step) * self.parts

    def micro_batches(self, batches: Iterator[Batch], step: int) -> Iterator[Batch]:
        """Yields a step's micro-batches as its batches come; raises BadData when the epoch ends too early."""
        taken = 0
        for batch in islice(batches, self.batches_in(step)):
            taken += 1
            yield from cut(batch, self.parts, self.rank_batch)
        if taken < self.batches_in(step):
            raise BadData(f"an epoch of {self.batches} batches ended in step {step + 1} of {self.steps}")


@dataclass(frozen=True)
class StagePlan:
    """The steps of a stage; its epochs need not be equally long."""

    epochs: tuple[EpochPlan, ...]
    finished: tuple[int, ...] = ()  # steps that the first epochs took, where these are not those of `epochs`

    @classmethod
    def of(cls, batches: Sequence[int], rank_batch: int, accumulate: int = 1, parts: int = 1) -> "StagePlan":
        """Returns the plan of epochs with so many loader batches each; raises BadConfig like `EpochPlan`."""
        return cls(tuple(EpochPlan(count, rank_batch, accumulate, parts) for count in batches))

    def epoch(self, number: int) -> EpochPlan:
        """Returns the plan of an epoch, from 0; beyond the last one they come again."""
        return self.epochs[number % len(self.epochs)]

    @cached_property
    def epoch_steps(self) -> tuple[int, ...]:
        """Optimizer steps of each epoch."""
        planned = tuple(plan.steps for plan in self.epochs)
        return self.finished + planned[len(self.finished) :]

    @property
    def steps(self) -> int:
        """Optimizer steps of the stage."""
        return sum(self.epoch_steps)

    def after(self, epochs: int, steps: int) -> "StagePlan":
        """Returns the plan of a run whose first epochs took so many steps together.

        A run that is resumed with more epochs may have had others, where the recipe's draw depends on their number.
        """
        if not 0 < epochs <= len(self.epochs) or sum(self.epoch_steps[:epochs]) == steps:
            return self
        each, more = divmod(steps, epochs)
        return replace(self, finished=tuple(each + (number < more) for number in range(epochs)))

    def at(self, step: int, epoch: int, step_in_epoch: int) -> Position:
        """Returns the position of a step."""
        return Position(step, epoch, step_in_epoch, self.epoch_steps)


def cut(batch: Batch, parts: int, rows: int) -> Iterator[Batch]:
    """Yields a batch of `rows` samples in equal parts; what has no row a sample goes to each part."""
    if parts == 1:
        yield batch
        return
    size = rows // parts
    for begin in range(0, rows, size):
        yield {key: value[begin : begin + size] if _has_rows(value, rows) else value for key, value in batch.items()}


def next_parts(parts: int, rank_batch: int) -> int | None:
    """Returns the next larger number of equal parts of a rank's batch, None when each part is one sample already."""
    return next((number for number in range(parts + 1, rank_batch + 1) if rank_batch % number == 0), None)


def parts_of(rank_batch: int, most_rows: int) -> int:
    """Returns the fewest equal parts of a rank's batch of which none has more than `most_rows` samples."""
    return next(n for n in range(1, rank_batch + 1) if rank_batch % n == 0 and rank_batch // n <= most_rows)


def _has_rows(value: object, rows: int) -> bool:
    if isinstance(value, torch.Tensor):
        return value.ndim > 0 and len(value) == rows
    return isinstance(value, list | tuple) and len(value) == rows
