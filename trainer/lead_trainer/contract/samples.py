"""What a stage trains and validates on: samples, and the caches they come from."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from lead_trainer.contract.checked_parts import Overridable
from lead_trainer.errors import BadData

if TYPE_CHECKING:
    import torch

Sample = dict[str, Any]  # numpy arrays and scalars by key
Batch = dict[str, Any]  # torch tensors by key, first axis the batch; lists for strings
Indices = npt.NDArray[np.int64]


class Cache(Protocol):
    """A committed cache as samples read it; `data.cache_reader.CacheReader` is one."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The config values the cache was built with."""

    @property
    def digest(self) -> str:
        """The cache's name."""

    @property
    def facts(self) -> Mapping[str, Sequence[float]]:
        """What its build states of all samples together."""

    def rows(self, collection: str) -> Any:
        """Returns the rows of one collection (`data.cache_tables.CollectionRows`)."""

    def metas(self) -> Any:
        """Returns the metas of every frame (`data.cache_tables.MetaColumns`)."""

    def fields(self, sample: int) -> Mapping[str, memoryview]:
        """Returns the checked record of one sample."""

    def sample_shards(self, samples: npt.NDArray[np.integer]) -> Indices:
        """Returns the number of the shard that the record of each sample lies in, by the samples' numbers."""

    def fetch_shard(self, shard: int) -> bool:
        """Fetches a shard to this node; returns False where that may succeed later."""


Caches = Mapping[
    str, Cache
]  # by the name of the dataset, in the order of the run's `datasets`; empty where it has none


class Samples(Overridable, ABC):
    """The samples of a stage, decoded and augmented. Only the first three methods must be there."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of samples an epoch may draw from."""

    @abstractmethod
    def epoch_draw(self, epoch: int) -> Indices:
        """Returns the unshuffled sample indices of one epoch, with the buckets' mixture factors applied."""

    @abstractmethod
    def load(self, index: int, epoch: int) -> Sample:
        """Returns one sample; a pure function of (index, epoch, config.seed) and the cache. Thread-safe."""

    def name(self, index: int) -> str:
        """Returns what a sample is called in messages, for example route and frame."""
        return str(index)

    def shards_of(self, indices: Indices) -> Indices | None:
        """Returns the number of the shard that each sample lies in, None for samples that lie in none."""
        return None

    def fetch_shard(self, shard: int) -> bool:
        """Fetches a shard to this node before its samples are needed; returns False where that may succeed later.

        Raises StoreError, and CorruptRecord for a corrupt copy.
        """
        return True

    def order_epoch(self, epoch: int) -> int:
        """Returns the epoch whose order `epoch` has; another one where several epochs are trained in one order."""
        return epoch

    def composed_order(self, epoch: int, batch_size: int, canonical_nodes: int) -> Indices | None:
        """Returns the epoch's samples in training order, each slice a global batch; None for any mixture.

        For batches with a fixed share of every data set; as many samples as `epoch_draw` has. Each slice has a section
        of each of `canonical_nodes`, which draws from shards of its own (`data.node_shares`).
        """
        return None

    def group_lengths(self) -> Indices | None:
        """Returns the length of every sample, for batches of samples of like length; None for any mixture."""
        return None


def stacked(
    samples: Sequence[Sample], *, fill_missing: bool = False, hint: str = "every sample must have the same"
) -> Batch:
    """Stacks samples, texts to lists; what some lack is filled with zeros where `fill_missing`, else refused.

    Raises BadData naming the key whose values cannot be stacked, with their shapes and the `hint`.
    """
    keys = dict.fromkeys(key for sample in samples for key in sample)
    return {key: _stacked(key, [sample.get(key) for sample in samples], fill_missing, hint) for key in keys}


def _stacked(key: str, values: Sequence[Any], fill_missing: bool, hint: str) -> "torch.Tensor | list[str]":
    import torch

    example = next((value for value in values if value is not None), None)
    missing = sum(value is None for value in values)
    if example is None or (missing and not fill_missing):
        raise BadData(f"key {key} has no value in {missing} of {len(values)} samples of one batch; {hint}")
    if isinstance(example, str):
        return [value or "" for value in values]
    filler = np.zeros_like(np.asarray(example)) if missing else np.empty(0)
    arrays = [filler if value is None else np.asarray(value) for value in values]
    if len({array.shape for array in arrays}) > 1:
        shapes = sorted({str(array.shape) for array in arrays})
        raise BadData(f"key {key} has shapes {', '.join(shapes)} in one batch; {hint}")
    together = np.stack(arrays)
    if together.dtype.kind not in "biufc":
        raise BadData(f"key {key} holds {type(example).__name__}, expected numbers, arrays of them, or texts; {hint}")
    return torch.from_numpy(together)
