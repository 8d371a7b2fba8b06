"""The samples of a benchmark: an index over one split of a cache, and the entries that both benchmarks share.

They are made of the record's `future`, `kinematics` and `pose`; what every mode's samples hold is in `modes`.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lead_trainer.contract.samples import Sample
from lead_trainer.data.array_block import unpack_arrays
from lead_trainer.data.in_shards import RowsInShards
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.distill.modes import mode_of, rows_of
from lead_trainer.recipes.prepare_keys import refuse_other_preparation


class BenchmarkSamples(RowsInShards):
    """The samples of one split; index is the position among its rows, and nothing in a sample is random."""

    def __init__(self, config: DistillConfig, cache: Any, split: str) -> None:
        """`cache` is a `data.cache_reader.CacheReader`; raises BadConfig where it was built with other values."""
        name = config.benchmark
        if cache is None:
            raise BadConfig(f"benchmark {name} trains on a dataset cache; name one in datasets, or set {name}_root")
        refuse_other_preparation(mode_of(name).preparation.config_keys(config.model_dump()), cache.config)
        self.config = config
        self._cache, self._rows, self._metas = cache, rows_of(config, cache, split), cache.metas()

    def __len__(self) -> int:
        """Number of forecasts to make."""
        return len(self._rows.sample)

    def epoch_draw(self, epoch: int) -> npt.NDArray[np.int64]:
        """Returns every sample once."""
        return np.arange(len(self), dtype=np.int64)

    def name(self, index: int) -> str:
        """Returns the route and the present step, for messages."""
        return f"{self._rows.route[index]} step {self._rows.frame[index]}"

    def load(self, index: int, epoch: int) -> Sample:
        """Returns one sample."""
        record = self._cache.fields(int(self._rows.sample[index]))
        arrays = unpack_arrays(record["arrays"], compressed=True)
        route = str(self._rows.route[index])
        meta = self._metas.row(route, int(self._rows.frame[index]))
        return {**target_entries(arrays), **self.entries(record, arrays, meta), "route": route}

    @abstractmethod
    def entries(
        self, record: Mapping[str, memoryview], arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any]
    ) -> Sample:
        """Returns what this benchmark alone has: the encoder's inputs, `category`, and the challenge's names."""


def target_entries(arrays: Mapping[str, npt.NDArray[Any]]) -> Sample:
    """Returns the entries that every forecasting benchmark shares; what is not known is 0 and not valid."""
    future, steps = arrays["future"], len(arrays["future"])
    return {
        "target_xy": np.nan_to_num(future[:, :2]).astype(np.float32),
        "target_yaw": np.nan_to_num(future[:, 2]).astype(np.float32),
        "target_valid": ~np.isnan(future).any(axis=1),
        "speed": np.float32(arrays["kinematics"][0]),
        "kinematics": arrays["kinematics"].astype(np.float64),
        "pose": arrays["pose"].astype(np.float64),
        "actions": np.zeros((steps, 2), np.float32),
    }
