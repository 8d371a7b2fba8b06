"""What a source of samples over one cache knows of its shards: a base class, for `shards_ahead.LiesInShards`."""

from typing import Any, Protocol

from lead_trainer.data.cache_tables import CollectionRows
from lead_trainer.data.sample_order import Indices


class FetchesShards(Protocol):
    """What is needed of `cache_reader.CacheReader`."""

    def fetch_shard(self, shard: int) -> bool:
        """Brings a shard to this node; returns False where that may succeed later."""


class RowsInShards:
    """A source whose index is the position among a collection's rows."""

    _rows: CollectionRows
    _cache: Any  # at least FetchesShards

    def shards_of(self, indices: Indices) -> Indices:
        """Returns the number of the shard that each sample lies in."""
        return self._rows.shard[indices]

    def fetch_shard(self, shard: int) -> bool:
        """Brings a shard to this node; see `session_cache.SessionCache.fetch`."""
        return bool(self._cache.fetch_shard(shard))
