"""Batches in training order, made ahead by threads: same seed, same batches, for any thread count and any restart.

The loop asks for an epoch from a step on; nothing before that step is loaded. One loader a rank.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from lead_protocol.store.object_store import StoreError
from lead_trainer.data.ordered_pool import ordered_map
from lead_trainer.data.sample_order import Indices, epoch_order, rank_batch, rank_batch_size, steps_in_epoch
from lead_trainer.errors import BadData, TrainerError
from lead_trainer.recipes.recipe import Batch, Sample, SampleSource

BATCHES_AHEAD = 2


@runtime_checkable
class NamesSamples(Protocol):
    """A source that can say what a sample is, for messages."""

    def name(self, index: int) -> str:
        """Returns, for example, route and frame."""


@runtime_checkable
class ReplaysOrder(Protocol):
    """A source that trains several epochs in one order."""

    def order_epoch(self, epoch: int) -> int:
        """Returns the epoch whose order `epoch` has."""


Collate = Callable[[Sequence[Sample]], Batch]


class Loader:
    """Batches of one rank."""

    def __init__(
        self,
        source: SampleSource,
        collate: Collate,
        *,
        batch_size: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        threads: int = 1,
        batches_ahead: int = BATCHES_AHEAD,
    ) -> None:
        """`batch_size` is global; raises BadConfig unless the ranks share it evenly."""
        self._source = source
        self._collate = collate
        self._batch_size = batch_size
        self._rank_size = rank_batch_size(batch_size, world_size)
        self._seed = seed
        self._rank = rank
        self._world = world_size
        self._threads = max(1, threads)
        self._window = max(1, batches_ahead) * self._rank_size

    def steps_per_epoch(self, epoch: int) -> int:
        """Returns the number of batches of an epoch, the same on every rank; raises BadData where there is none."""
        return steps_in_epoch(len(self._source.epoch_draw(epoch)), self._batch_size)

    def sample_indices(self, epoch: int, start_step: int = 0) -> Iterator[Indices]:
        """Yields this rank's sample indices of each batch."""
        ordered_as = self._source.order_epoch(epoch) if isinstance(self._source, ReplaysOrder) else epoch
        order = epoch_order(self._source.epoch_draw(ordered_as), self._seed, ordered_as)
        for step in range(start_step, steps_in_epoch(len(order), self._batch_size)):
            yield rank_batch(order, step, self._batch_size, self._rank, self._world)

    def batches(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        """Yields this rank's batches from `start_step` on; a failing sample is raised with its name, at its place."""
        numbers = (int(index) for batch in self.sample_indices(epoch, start_step) for index in batch)
        samples = ordered_map(lambda index: self._load(index, epoch), numbers, self._threads, self._window)
        try:
            ready: list[Sample] = []
            for sample in samples:
                ready.append(sample)
                if len(ready) == self._rank_size:
                    yield self._collate(ready)
                    ready = []
        finally:
            samples.close()  # type: ignore[attr-defined]  # a generator: stops the threads

    def _load(self, index: int, epoch: int) -> Sample:
        try:
            return self._source.load(index, epoch)
        except TrainerError as error:
            raise type(error)(f"sample {self._name(index)}: {error}") from error
        except StoreError:
            raise  # names the object, and its class decides the exit code
        except Exception as error:
            raise BadData(f"sample {self._name(index)}: {type(error).__name__}: {error}") from error

    def _name(self, index: int) -> str:
        return f"{index} ({self._source.name(index)})" if isinstance(self._source, NamesSamples) else str(index)
