"""A recipe's samples, whose results are checked where they are taken: what is wrong is one sentence with the part."""

from dataclasses import dataclass

import numpy as np

from lead_trainer.contract.checked_parts import BadPart
from lead_trainer.contract.results import returned
from lead_trainer.contract.samples import Indices, Sample, Samples


@dataclass(frozen=True)
class CheckedSamples(Samples):
    """Samples that raise BadPart for a result that is none."""

    recipe: str
    part: str  # of the recipe, which made them: `samples`, `validation.samples`
    source: Samples

    def __len__(self) -> int:
        """Number of the source's samples."""
        return len(self.source)

    def epoch_draw(self, epoch: int) -> Indices:
        """Returns the numbers of the source's samples that an epoch has."""
        return self._numbers("epoch_draw", self.source.epoch_draw(epoch))

    def composed_order(self, epoch: int, batch_size: int, canonical_nodes: int) -> Indices | None:
        """Returns the numbers of the source's samples in the order of an epoch."""
        order = self.source.composed_order(epoch, batch_size, canonical_nodes)
        return None if order is None else self._numbers("composed_order", order)

    def load(self, index: int, epoch: int) -> Sample:
        """Returns one sample of the source, values by key."""
        sample: Sample = returned(self.recipe, f"{self.part}.load", self.source.load(index, epoch), dict)
        return sample

    def name(self, index: int) -> str:
        """Returns the source's name of a sample."""
        name: str = returned(self.recipe, f"{self.part}.name", self.source.name(index), str)
        return name

    def shards_of(self, indices: Indices) -> Indices | None:
        """Returns the shard of each sample of the source, as many as were asked for."""
        found = self.source.shards_of(indices)
        return None if found is None else self._of_each("shards_of", found, len(indices))

    def fetch_shard(self, shard: int) -> bool:
        """Fetches a shard of the source to this node."""
        return self.source.fetch_shard(shard)

    def order_epoch(self, epoch: int) -> int:
        """Returns the epoch whose order `epoch` has."""
        found: int = returned(self.recipe, f"{self.part}.order_epoch", self.source.order_epoch(epoch), int, np.integer)
        return found

    def group_lengths(self) -> Indices | None:
        """Returns the lengths of the source's samples."""
        found = self.source.group_lengths()
        return None if found is None else self._of_each("group_lengths", found, len(self.source))

    def _whole_numbers(self, method: str, found: Indices) -> Indices:
        part = f"{self.part}.{method}"
        returned(self.recipe, part, found, np.ndarray)
        if found.ndim != 1 or found.dtype.kind not in "iu":
            raise BadPart(
                f"recipe {self.recipe!r}: {part} returned {found.shape} values of {found.dtype}, expected whole "
                "numbers in one axis"
            )
        return found

    def _numbers(self, method: str, found: Indices) -> Indices:
        numbers = self._whole_numbers(method, found)
        if len(numbers) and numbers.min() < 0:
            raise BadPart(
                f"recipe {self.recipe!r}: {self.part}.{method} draws sample {numbers.min()}, expected numbers from 0"
            )
        return numbers

    def _of_each(self, method: str, found: Indices, count: int) -> Indices:
        values = self._whole_numbers(method, found)
        if len(values) != count:
            raise BadPart(
                f"recipe {self.recipe!r}: {self.part}.{method} returned {len(values)} values of {count} samples, "
                "expected one each"
            )
        return values
