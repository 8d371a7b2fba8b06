"""What a recipe's samples need of a cache: `cache_reader.CacheReader`, a part of one, or a test's own."""

from collections.abc import Mapping
from typing import Any, Protocol

from lead_trainer.data.cache_tables import CollectionRows
from lead_trainer.data.in_shards import FetchesShards


class SampleCache(FetchesShards, Protocol):
    """Rows and checked records; a recipe's own protocol adds what else it reads."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The config values the cache was built with."""

    def rows(self, collection: str) -> CollectionRows:
        """Rows of one collection."""

    def fields(self, sample: int) -> Mapping[str, memoryview]:
        """Checked record of one sample."""
