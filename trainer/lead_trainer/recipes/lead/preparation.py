"""How a raw tree becomes a cache, whichever data set it is: CARLA routes, a NavSim feature cache, or Waymo-E2E frames.

A cache holds one data set, named by its key `source_dataset` (default: the only one the config uses).
Called by `data.build`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from lead_trainer.contract.preparation import Preparation
from lead_trainer.contract.raw_data import SampleKey, Scan, SourceTree
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.lead.buckets import RULES
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.data_sources import CARLA, NAVSIM, WAYMO
from lead_trainer.recipes.lead.prepare_carla import CarlaPreparation
from lead_trainer.recipes.lead.prepare_navsim import NavsimPreparation
from lead_trainer.recipes.lead.prepare_waymo import WaymoPreparation
from lead_trainer.recipes.lead.sim2real_buckets import MINED

SOURCE_KEY = "source_dataset"
STAGES = ("pretrain", "posttrain")


class SourcePreparation(Protocol):
    """The preparation of one kind of data set; see `recipe.Preparation` for the methods both have."""

    def keys(self, config: LeadConfig) -> Mapping[str, Any]:
        """Returns the values of `config` that the preparation reads."""

    def scan(self, tree: SourceTree, config: Mapping[str, Any], collections: Sequence[str]) -> Scan:
        """Reads verdicts and listings, and fills the named collections."""

    def record(self, tree: SourceTree, config: Mapping[str, Any], sample: SampleKey) -> Mapping[str, bytes]:
        """Returns the cache record of one sample."""

    def route_metas(self, tree: SourceTree, config: Mapping[str, Any], route: str, frames: Sequence[int]) -> pa.Table:
        """Returns the columnar metas of one route."""


PREPARATIONS: dict[str, SourcePreparation] = {
    CARLA.name: CarlaPreparation(),
    NAVSIM.name: NavsimPreparation(),
    WAYMO.name: WaymoPreparation(),
}


class LeadPreparation(Preparation):
    """The preparation of the recipe; each call goes to that of the cache's data set."""

    version = "lead-prepare/4"  # a test holds it together with the bytes that records have
    default_collections = ("full_pretrain", "full_posttrain")

    def all_collections(self) -> Sequence[str]:
        """Returns the collections of LEAD's rules, and those that are mined."""
        return (*RULES, *MINED)

    def collections_for(self, config: Mapping[str, Any]) -> Sequence[str]:
        """Returns what a cache holds that names no collection: what the stages of such a config train on."""
        values = {key: value for key, value in config.items() if key != "preset"}
        resolved = load_config(values, str(config.get("preset", "")))
        if cache_source(resolved) != CARLA.name or not resolved.mixed_data_training:
            return self.default_collections
        return tuple(f"{'waymo' if resolved.use_waymo_e2e_data else 'navsim'}_{stage}" for stage in STAGES)

    def config_keys(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the read values; `config` holds LEAD's keys and optionally `preset`. Raises BadConfig."""
        values = {key: value for key, value in config.items() if key != "preset"}
        resolved = load_config(values, str(config.get("preset", "")))
        name = cache_source(resolved)
        return {SOURCE_KEY: name, **PREPARATIONS[name].keys(resolved)}

    def scan(self, tree: SourceTree, config: Mapping[str, Any], collections: Sequence[str]) -> Scan:
        """Judges what the tree holds and fills the named collections."""
        return PREPARATIONS[config[SOURCE_KEY]].scan(tree, config, collections)

    def record(self, tree: SourceTree, config: Mapping[str, Any], sample: SampleKey) -> Mapping[str, bytes]:
        """Returns one sample's fields; raises BadData naming file, route and frame."""
        return PREPARATIONS[config[SOURCE_KEY]].record(tree, config, sample)

    def route_metas(self, tree: SourceTree, config: Mapping[str, Any], route: str, frames: Sequence[int]) -> pa.Table:
        """Returns one row a frame."""
        return PREPARATIONS[config[SOURCE_KEY]].route_metas(tree, config, route, frames)


def cache_source(config: LeadConfig) -> str:
    """Returns which data set a cache with this config is built from; raises BadConfig if that is not set."""
    if config.source_dataset:
        return config.source_dataset
    names = [source.name for source in config.sources]
    if len(names) > 1:
        raise BadConfig(
            f"source_dataset: not set, but the config uses {', '.join(names)}; a cache holds one data set: name it"
        )
    return names[0]
