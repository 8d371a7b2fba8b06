"""The config values the preparation reads: those of the section `data` that say what is in a cache."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from lead_trainer.contract.config_values import checked, values_in
from lead_trainer.recipes.prepare_keys import DigestedKeys
from lead_trainer.recipes.world.data_keys import DataKeys

PACKAGE = "lead_trainer.recipes.world"  # of the presets
SWEEPS = "sweeps"  # of `frames`


@dataclass(frozen=True)
class WorldKeys(DigestedKeys):
    """Which pictures of which scenes, at which size; see `data_keys.DataKeys`."""

    dataset: str
    version: str
    camera: str
    frames: str
    image_size: tuple[int, int]  # height, width
    crop: str
    split: str
    val_share: float
    split_seed: int


class _CacheConfig(BaseModel):
    """What a cache reads of a config. Its other keys are the run's: a cache need not fit a decoder."""

    model_config = ConfigDict(extra="allow")

    data: DataKeys = DataKeys()


def data_keys_of(config: Mapping[str, Any]) -> DataKeys:
    """Returns the section `data` of a config with the recipe's keys and optionally `preset`; raises BadConfig."""
    base = values_in(PACKAGE, str(config["preset"])) if config.get("preset") else {}
    values = {key: value for key, value in config.items() if key != "preset"}
    return checked(_CacheConfig, base, values, {}).data
