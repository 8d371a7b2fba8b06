"""A source of samples over one cache: a base class of which each sample is a row of a collection."""

import numpy as np

from lead_trainer.contract.samples import Cache, Indices, Samples
from lead_trainer.data.cache_tables import CollectionRows


class RowsInShards(Samples):
    """A source whose index is the position among a collection's rows."""

    _rows: CollectionRows
    _cache: Cache

    def shards_of(self, indices: Indices) -> Indices:
        """Returns the number of the shard that each sample lies in."""
        return np.asarray(self._cache.sample_shards(self._rows.sample[indices]), np.int64)

    def fetch_shard(self, shard: int) -> bool:
        """Fetches a shard to this node; see `session_cache.SessionCache.fetch`."""
        return self._cache.fetch_shard(shard)
