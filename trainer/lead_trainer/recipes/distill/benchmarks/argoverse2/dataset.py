"""Argoverse 2 samples from a cache, at fixed sizes: the nearest agents and map lines, the rest empty.

Shapes: A `max_agents`, L `max_polylines`, N `polyline_points`. Type 0 is an empty row, type n + 1 the n-th type. What
every mode's samples hold is in `modes`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lead_trainer.contract.samples import Sample
from lead_trainer.recipes.distill.benchmarks.argoverse2.scenario import OBJECT_TYPES
from lead_trainer.recipes.distill.benchmarks.samples import BenchmarkSamples

Array = npt.NDArray[Any]


class Argoverse2Samples(BenchmarkSamples):
    """The windows of one split."""

    def entries(self, record: Mapping[str, memoryview], arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Sample:
        """Returns agents, lines and the names of scenario and track."""
        return {
            **agents(arrays, self.config.max_agents),
            **lines(arrays, self.config.max_polylines),
            "category": np.int64(OBJECT_TYPES.index(meta["object_type"])),
            "scenario_id": meta["scenario_id"],
            "track_id": meta["track_id"],
        }


def agents(arrays: Mapping[str, Array], count: int) -> Sample:
    """Returns `agents` (A, 50, 6), `agents_seen` (A, 50) and `agent_types` (A,)."""
    states = arrays["agents"][:count]
    padded = np.full((count, *states.shape[1:]), np.nan, np.float32)
    padded[: len(states)] = states
    types = np.zeros(count, np.int64)
    types[: len(states)] = arrays["agent_types"][:count].astype(np.int64) + 1
    return {"agents": np.nan_to_num(padded), "agents_seen": ~np.isnan(padded).any(axis=-1), "agent_types": types}


def lines(arrays: Mapping[str, Array], count: int) -> Sample:
    """Returns `lines` (L, N, 2) and `line_types` (L,)."""
    known = arrays["lines"][:count]
    padded = np.zeros((count, *known.shape[1:]), np.float32)
    padded[: len(known)] = known
    types = np.zeros(count, np.int64)
    types[: len(known)] = arrays["line_types"][:count].astype(np.int64) + 1
    return {"lines": padded, "line_types": types}
