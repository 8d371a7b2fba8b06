"""A cache of the recipe `lead` in memory that prepares a sample when it is asked for, through a real one's bytes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lead_trainer.data.cache_tables import (
    ROUTE_COLUMN,
    CollectionRows,
    MetaColumns,
    Placement,
    collection_rows,
    collection_table,
    read_table,
    write_table,
)
from lead_trainer.data.record import decode_record, encode_record
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.recipes.lead.preparation import LeadPreparation


class OnDemandCache:
    """What `LeadSamples` reads of a cache, made from a raw tree with the given config values."""

    def __init__(self, root: Path, values: Mapping[str, Any], collections: Sequence[str]) -> None:
        self._preparation, self._tree = LeadPreparation(), FolderTree(root)
        self.config = self._preparation.config_keys(values)
        self._scan = self._preparation.scan(self._tree, self.config, collections)
        self._records: dict[int, Mapping[str, memoryview]] = {}
        self.digest = f"on-demand-{root.name}"
        self.facts: Mapping[str, Sequence[float]] = {}  # the recipe counts nothing

    def rows(self, collection: str) -> CollectionRows:
        """Returns the collection's rows, all in one shard."""
        found = next(entry for entry in self._scan.collections if entry.name == collection)
        count = len(self._scan.samples)
        table = collection_table(found, self._scan.samples, Placement(np.zeros(count, np.int64), np.arange(count), 1))
        return collection_rows(collection, write_table(table))[0]

    def metas(self) -> MetaColumns:
        """Returns the ego metas of every frame of a collection."""
        frames: dict[str, list[int]] = {}
        for key in self._scan.samples:
            frames.setdefault(key.route, []).append(key.frame)
        tables = []
        for route, numbers in sorted(frames.items()):
            table = self._preparation.route_metas(self._tree, self.config, route, sorted(set(numbers)))
            tables.append(table.append_column(ROUTE_COLUMN, [[route] * table.num_rows]))
        return MetaColumns(read_table(write_table(pa.concat_tables(tables)), "metas"))

    def sample_shards(self, samples: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Returns the one shard for each sample."""
        return np.zeros(len(samples), np.int64)

    def fetch_shard(self, shard: int) -> bool:
        """Has none: each record is prepared when it is asked for."""
        return True

    def fields(self, sample: int) -> Mapping[str, memoryview]:
        """Returns one record, prepared at the first call."""
        if sample not in self._records:
            fields = self._preparation.record(self._tree, self.config, self._scan.samples[sample])
            self._records[sample] = dict(decode_record(encode_record(sample, fields)).fields)
        return self._records[sample]
