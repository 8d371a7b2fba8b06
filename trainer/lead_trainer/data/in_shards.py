"""What a source of samples over one cache knows of its shards: a base class, for `shards_ahead.LiesInShards`."""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lead_trainer.data.cache_tables import CollectionRows
from lead_trainer.data.sample_order import Indices


class FetchesShards(Protocol):
    """What is needed of `cache_reader.CacheReader`."""

    def sample_shards(self, samples: npt.NDArray[np.integer]) -> Indices:
        """Returns the number of the shard that the record of each sample lies in, by the samples' numbers."""

    def fetch_shard(self, shard: int) -> bool:
        """Brings a shard to this node; returns False where that may succeed later."""


class RowsInShards:
    """A source whose index is the position among a collection's rows."""

    _rows: CollectionRows
    _cache: Any  # at least FetchesShards

    def shards_of(self, indices: Indices) -> Indices:
        """Returns the number of the shard that each sample lies in."""
        return np.asarray(self._cache.sample_shards(self._rows.sample[indices]), np.int64)

    def fetch_shard(self, shard: int) -> bool:
        """Brings a shard to this node; see `session_cache.SessionCache.fetch`."""
        return bool(self._cache.fetch_shard(shard))
