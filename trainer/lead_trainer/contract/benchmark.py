"""A recipe's own measure of trained weights, behind `lead evaluate`: beside baselines, with a challenge's file."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lead_trainer.contract.checked_parts import checked_parts
from lead_trainer.contract.samples import Caches
from lead_trainer.contract.step import ConfigT

if TYPE_CHECKING:
    import torch

BatchT = TypeVar("BatchT")


@dataclass(frozen=True, kw_only=True)
class Evaluated(Generic[ConfigT]):
    """Weights that shall be measured."""

    config: ConfigT  # of the run they came from, with what the command line changes
    weights: Path
    model: "torch.nn.Module"  # with these weights, in eval mode, on the device
    split: str
    submission: Path | None  # where a challenge's file goes, None: beside the weights
    caches: Callable[[Sequence[str]], Caches]  # those that hold these collections; builds what is missing
    report: Callable[[int, int], None] = lambda done, of: None  # how many batches are done, and of how many

    def counted(self, batches: Iterable[BatchT], of: int) -> Iterator[BatchT]:
        """Passes batches on and reports each that was measured: a long measure is no hang, and can be stopped."""
        for done, batch in enumerate(batches, start=1):
            yield batch
            self.report(done, of)


@checked_parts
@dataclass(frozen=True, kw_only=True)
class Benchmark(Generic[ConfigT]):
    """How weights are measured; a recipe without one has its validation's metrics measured by `lead evaluate`."""

    #: The splits that can be measured, the usual one first.
    splits: tuple[str, ...]
    #: Measures the batches of `Evaluated.counted`, prints tables, writes a challenge's file; returns what it found,
    #: whose `summary()` (JSON values) and `markdown()` become part of the report where it has them. Raises BadConfig or
    #: BadData.
    measure: Callable[[Evaluated[ConfigT]], Any]
