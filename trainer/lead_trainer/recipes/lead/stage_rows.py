"""The rows that a stage trains on, also from a cache whose posttrain collection leaves other frames of a route out.

How many frames at a route's ends have no label follows from the planner's horizon. Records and metas do not depend on
it, and the pretrain collection holds every frame but the first and last ones, so one cache serves every horizon.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lead_trainer.data.cache_tables import CollectionRows
from lead_trainer.recipes.lead.buckets import RULES
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.data_sources import CARLA, HORIZON

SKIPS = ("skip_first_posttrain", "skip_last_posttrain")
_OF_PRETRAIN = {"skip_first_posttrain": "skip_first_pretrain", "skip_last_posttrain": "skip_last_pretrain"}
# What a cache's posttrain collection follows from, and no record of it.
_HORIZON = (*SKIPS, *HORIZON)
PER_ROW = ("bucket", "route", "frame", "sample")


class HasRows(Protocol):
    """What is needed of a cache."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The config values the cache was built with."""

    def rows(self, collection: str) -> CollectionRows:
        """Rows of one collection."""


def can_be_cut(config: LeadConfig, collection: str) -> bool:
    """Returns whether the stage's rows can be cut out of the pretrain collection: all its frames are in that."""
    inside = all(getattr(config, key) >= getattr(config, other) for key, other in _OF_PRETRAIN.items())
    return collection in RULES and inside


def shared_values(config: LeadConfig, values: Mapping[str, Any], collection: str) -> Mapping[str, Any]:
    """Returns the values of the one cache on this machine that serves every horizon over a tree, where one can."""
    if config.sources != (CARLA,) or not can_be_cut(config, collection):
        return values
    return {**values, **{key: LeadConfig.model_fields[key].default for key in _HORIZON}}


def stage_rows(config: LeadConfig, cache: HasRows, collection: str) -> CollectionRows:
    """Returns a stage's rows, cut out of the pretrain collection where the cache's own leaves other frames out."""
    same = all(cache.config.get(key) == getattr(config, key) for key in SKIPS)
    if config.is_pretraining or same or not can_be_cut(config, collection):
        return cache.rows(collection)
    whole = cache.rows(collection.replace("posttrain", "pretrain"))
    last = np.zeros(len(whole.route.names), np.int64)
    np.maximum.at(last, whole.route.codes, whole.frame)
    frames = last[whole.route.codes] + 1 + config.skip_last_pretrain  # of each row's route
    kept = (whole.frame >= config.skip_first_posttrain) & (whole.frame < frames - config.skip_last_posttrain)
    return _cut(whole, kept, collection)


def _cut(whole: CollectionRows, kept: npt.NDArray[np.bool_], collection: str) -> CollectionRows:
    rows = replace(whole, name=collection, **{name: getattr(whole, name)[kept] for name in PER_ROW})
    sizes = np.bincount(rows.bucket, minlength=len(rows.bucket_names))
    held_out = bool(RULES[collection].hold_out)
    mixture = (0.0, float(sizes.sum() / max(1, sizes[-1]))) if held_out else rows.mixture
    return replace(rows, mixture=mixture)
