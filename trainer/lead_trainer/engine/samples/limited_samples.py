"""A few samples of a source, for trying out: the first n, or the first n again and again."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lead_trainer.contract.samples import Indices, Sample, Samples


@dataclass(frozen=True)
class LimitedSamples(Samples):
    """The first `count` samples of each epoch's draw of `source`; `repeated` draws them until a batch is full."""

    source: Samples
    count: int
    repeated: int = 0  # fewest samples of a draw
    same_draw: bool = False  # every epoch draws what epoch 0 does

    def __len__(self) -> int:
        """Number of samples of a draw."""
        return len(self.epoch_draw(0))

    def epoch_draw(self, epoch: int) -> npt.NDArray[np.int64]:
        """Returns the limited draw of an epoch."""
        draw = self.source.epoch_draw(0 if self.same_draw else epoch)[: self.count]
        return np.tile(draw, -(-self.repeated // max(len(draw), 1))) if len(draw) < self.repeated else draw

    def load(self, index: int, epoch: int) -> Sample:
        """Returns one sample of the source."""
        return self.source.load(index, epoch)

    def name(self, index: int) -> str:
        """Returns the source's name of a sample."""
        return self.source.name(index)

    def shards_of(self, indices: Indices) -> Indices | None:
        """Returns the shards of the source's samples."""
        return self.source.shards_of(indices)

    def fetch_shard(self, shard: int) -> bool:
        """Fetches a shard of the source to this node."""
        return self.source.fetch_shard(shard)

    def group_lengths(self) -> Indices | None:
        """Returns the lengths of the source's samples."""
        return self.source.group_lengths()

    def order_epoch(self, epoch: int) -> int:
        """Returns the epoch whose order `epoch` has."""
        return self.source.order_epoch(epoch)
