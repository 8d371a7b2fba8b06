"""Where the record of each sample of a cache lies: shard and slot by the sample's number, 2 to 8 bytes a sample.

Used by `cache_reader`. Filled collection by collection, as the tables that name the places are read.
"""

import numpy as np
import numpy.typing as npt

from lead_protocol.manifests import CacheManifest
from lead_trainer.contract.samples import Indices
from lead_trainer.data.cache_tables import RowPlaces
from lead_trainer.data.small_ints import int_type
from lead_trainer.data.stored_manifest import REBUILD
from lead_trainer.errors import BadData


class SamplePlaces:
    """Shard and slot of the samples of every collection that was added; what is added twice is the same."""

    def __init__(self, manifest: CacheManifest) -> None:
        self._slots = max((entry.records for entry in manifest.shards), default=0)
        self._nowhere = len(manifest.shards)
        self._shard = np.full(manifest.samples, self._nowhere, int_type(0, self._nowhere))
        self._slot = np.zeros(manifest.samples, int_type(0, self._slots))

    def add(self, collection: str, places: RowPlaces) -> None:
        """Takes the places of a collection's rows; raises BadData where one is outside of the cache."""
        for name, values, most in (
            ("sample", places.sample, len(self._shard)),
            ("shard", places.shard, self._nowhere),
            ("slot", places.slot, self._slots),
        ):
            if len(values) and not 0 <= values.min() <= values.max() < most:
                raise BadData(
                    f"collection {collection} of the cache names {name} {values.min()} to {values.max()}, "
                    f"expected 0 to {most - 1}; {REBUILD}"
                )
        self._shard[places.sample] = places.shard
        self._slot[places.sample] = places.slot

    def has(self, sample: int) -> bool:
        """Returns whether a collection with this sample was added."""
        return bool(self._shard[sample] != self._nowhere)

    def of(self, sample: int) -> tuple[int, int]:
        """Returns shard and slot of a sample that was added."""
        return int(self._shard[sample]), int(self._slot[sample])

    def shards(self, samples: npt.NDArray[np.integer]) -> Indices:
        """Returns the shard of each of these samples, which were added."""
        return np.asarray(self._shard[samples], np.int64)
