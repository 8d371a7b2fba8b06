"""The preparation of the recipe, whatever it trains on: asks the mode that `benchmark` names."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lead_trainer.contract.preparation import Fields, Preparation
from lead_trainer.contract.raw_data import SampleKey, Scan, SourceTree
from lead_trainer.recipes.distill.config_values import config_of_cache
from lead_trainer.recipes.distill.modes import MODES, mode_of


class DistillPreparation(Preparation):
    """Clips, Argoverse 2 or nuScenes to records; the mode and its version are part of the digest."""

    version = "distill-prepare/1"
    default_collections: tuple[str, ...] = ("train", "val")

    def all_collections(self) -> Sequence[str]:
        """Returns the collections of every mode."""
        named = [mode_of(name).preparation.all_collections() for name in MODES]
        return tuple(dict.fromkeys(name for names in named for name in names))

    def config_keys(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the mode's values beside its name; `config` holds the recipe's keys and optionally `preset`."""
        benchmark = config_of_cache(config).benchmark
        chosen = mode_of(benchmark).preparation
        return {**chosen.config_keys(config), "benchmark": benchmark, "benchmark_version": chosen.version}

    def collections_for(self, config: Mapping[str, Any]) -> Sequence[str]:
        """Returns the collections of the mode's training and validation."""
        chosen = config_of_cache(config)
        return mode_of(chosen.benchmark).collections(chosen)

    def stays_in_process(self, config: Mapping[str, Any]) -> bool:
        """Returns whether a teacher's weights are loaded while the cache is built."""
        return config.get("teacher") == "alpamayo_r1"

    def reads(self, config: Mapping[str, Any]) -> Sequence[str]:
        """Returns how the paths begin that the mode reads."""
        return _of(config).reads(config)

    def counts(
        self, config: Mapping[str, Any], sample: SampleKey, record: Mapping[str, memoryview]
    ) -> Mapping[str, npt.NDArray[np.int64]]:
        """Returns what the mode counts in a record."""
        return _of(config).counts(config, sample, record)

    def facts(
        self, config: Mapping[str, Any], counts: Mapping[str, npt.NDArray[np.int64]]
    ) -> Mapping[str, Sequence[float]]:
        """Returns the mode's facts."""
        return _of(config).facts(config, counts)

    def build_stages(self, config: Mapping[str, Any]) -> Sequence[str]:
        """Returns the stages that the mode offers; benchmarks offer none."""
        return _of(config).build_stages(config)

    def stage_fields(self, tree: SourceTree, config: Mapping[str, Any], stage: str, sample: SampleKey) -> Fields:
        """Returns what a stage of the mode makes of one sample."""
        return _of(config).stage_fields(tree, config, stage, sample)

    def scan(self, tree: SourceTree, config: Mapping[str, Any], collections: Sequence[str]) -> Scan:
        """Reads listings and verdicts, fills the named collections."""
        return _of(config).scan(tree, config, collections)

    def record(self, tree: SourceTree, config: Mapping[str, Any], sample: SampleKey) -> Mapping[str, bytes]:
        """Returns the record of one sample."""
        return _of(config).record(tree, config, sample)

    def route_metas(self, tree: SourceTree, config: Mapping[str, Any], route: str, frames: Sequence[int]) -> pa.Table:
        """Returns the metas of one route."""
        return _of(config).route_metas(tree, config, route, frames)


def _of(config: Mapping[str, Any]) -> Preparation:
    return mode_of(str(config["benchmark"])).preparation
