"""Argoverse 2 samples from a cache, at fixed sizes: the nearest agents and map lines, the rest empty.

Shapes: A `max_agents`, L `max_polylines`, N `polyline_points`. Type 0 is an empty row, type n + 1 the n-th type. What
every mode's samples hold is in `modes`.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from lead_trainer.data.array_block import unpack_arrays
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.distill.benchmarks.argoverse2.preparation import Argoverse2Preparation
from lead_trainer.recipes.distill.benchmarks.argoverse2.scenario import OBJECT_TYPES
from lead_trainer.recipes.distill.benchmarks.targets import target_entries
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.recipe import Sample

Array = npt.NDArray[Any]


def collection_of(config: DistillConfig, split: str) -> str:
    """Returns the collection of a split; with `all_agents` the training split is every track's windows."""
    return f"windows_{split}" if config.all_agents and split == "train" else split


class Argoverse2Samples:
    """The samples of one split; index is the position among the collection's rows."""

    def __init__(self, config: DistillConfig, cache: Any, split: str) -> None:
        """`cache` is a `data.cache_reader.CacheReader`; raises BadConfig where it was built with other values."""
        if cache is None:
            raise BadConfig("benchmark argoverse2 trains on a dataset cache; name one in datasets, or argoverse2_root")
        for key, value in Argoverse2Preparation().config_keys(config.model_dump()).items():
            if cache.config.get(key) != value:
                raise BadConfig(f"{key}: found {value!r}, the cache has {cache.config.get(key)!r}; make them equal")
        self._config, self._cache = config, cache
        self._rows = cache.rows(collection_of(config, split))
        self._metas = cache.metas()

    def __len__(self) -> int:
        """Number of windows."""
        return len(self._rows.sample)

    def epoch_draw(self, epoch: int) -> npt.NDArray[np.int64]:
        """Returns every window once."""
        return np.arange(len(self), dtype=np.int64)

    def name(self, index: int) -> str:
        """Returns scenario, track and present step, for messages."""
        return f"{self._rows.route[index]} step {self._rows.frame[index]}"

    def load(self, index: int, epoch: int) -> Sample:
        """Returns one sample; nothing in it is random."""
        arrays = unpack_arrays(self._cache.fields(int(self._rows.sample[index]))["arrays"], compressed=True)
        meta = self._metas.row(str(self._rows.route[index]), int(self._rows.frame[index]))
        config = self._config
        return {
            **target_entries(arrays, epoch),
            **agents(arrays, config.max_agents),
            **lines(arrays, config.max_polylines),
            "category": np.int64(OBJECT_TYPES.index(meta["object_type"])),
            "scenario_id": meta["scenario_id"],
            "track_id": meta["track_id"],
        }


def agents(arrays: dict[str, Array], count: int) -> Sample:
    """Returns `agents` (A, 50, 6), `agents_seen` (A, 50) and `agent_types` (A,)."""
    states = arrays["agents"][:count]
    padded = np.full((count, *states.shape[1:]), np.nan, np.float32)
    padded[: len(states)] = states
    types = np.zeros(count, np.int64)
    types[: len(states)] = arrays["agent_types"][:count].astype(np.int64) + 1
    return {"agents": np.nan_to_num(padded), "agents_seen": ~np.isnan(padded).any(axis=-1), "agent_types": types}


def lines(arrays: dict[str, Array], count: int) -> Sample:
    """Returns `lines` (L, N, 2) and `line_types` (L,)."""
    known = arrays["lines"][:count]
    padded = np.zeros((count, *known.shape[1:]), np.float32)
    padded[: len(known)] = known
    types = np.zeros(count, np.int64)
    types[: len(known)] = arrays["line_types"][:count].astype(np.int64) + 1
    return {"lines": padded, "line_types": types}
