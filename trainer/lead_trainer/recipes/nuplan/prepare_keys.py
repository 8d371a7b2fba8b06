"""The config values the preparation reads: those of the section `data` that say what is in a cache."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from lead_trainer.contract.config_values import checked, values_in
from lead_trainer.recipes.nuplan.data_keys import DataKeys
from lead_trainer.recipes.prepare_keys import DigestedKeys

PACKAGE = "lead_trainer.recipes.nuplan"  # of the presets


@dataclass(frozen=True)
class NuplanKeys(DigestedKeys):
    """Which sweeps and pictures, at which size, with which labels; see `data_keys.DataKeys`."""

    cameras: tuple[str, ...]
    image_size: tuple[int, int]  # height, width
    max_camera_gap_ms: float
    lidar_rings: int
    split: str
    scenes: str
    val_share: float
    split_seed: int
    range_m: float
    cell_m: float
    future_steps: int
    future_step_s: float
    max_agents: int


class _CacheConfig(BaseModel):
    """What a cache reads of a config; its other keys are the run's."""

    model_config = ConfigDict(extra="allow")

    data: DataKeys = DataKeys()


def data_keys_of(config: Mapping[str, Any]) -> DataKeys:
    """Returns the section `data` of a config with the recipe's keys and optionally `preset`; raises BadConfig."""
    base = values_in(PACKAGE, str(config["preset"])) if config.get("preset") else {}
    values = {key: value for key, value in config.items() if key != "preset"}
    return checked(_CacheConfig, base, values, {}).data
