"""What evaluating a benchmark needs beside the recipe's mode: baselines, the submission's rows, metrics of the map.

Called by `cli_evaluate`; one class a benchmark.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadConfig
from lead_trainer.metrics.forecasting import Forecast
from lead_trainer.metrics.offroad import off_road_rate
from lead_trainer.recipes.distill.benchmarks import baselines
from lead_trainer.recipes.distill.benchmarks.agent_frame import AgentFrame
from lead_trainer.recipes.distill.benchmarks.argoverse2 import submission as argoverse2
from lead_trainer.recipes.distill.benchmarks.argoverse2.scenario import OBJECT_TYPES
from lead_trainer.recipes.distill.benchmarks.evaluation import truth_of
from lead_trainer.recipes.distill.benchmarks.nuscenes import submission as nuscenes
from lead_trainer.recipes.distill.benchmarks.nuscenes.dataset import CLASSES
from lead_trainer.recipes.distill.benchmarks.nuscenes.map_layers import read_city_map
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.distill.modes import mode_of
from lead_trainer.recipes.recipe import Batch, SourceTree


class Challenge(Protocol):
    """One benchmark's evaluation."""

    @property
    def classes(self) -> Sequence[str]:
        """Names that a batch's `category` counts through."""

    @property
    def file_name(self) -> str:
        """What the submission file is called."""

    def rows(self, forecast: Forecast, batch: Batch) -> list[Any]:
        """Returns the submission's entries of one batch."""

    def file(self, rows: Sequence[Any]) -> bytes:
        """Returns the submission file."""

    def map_metrics(self, forecast: Forecast, batch: Batch) -> Mapping[str, Tensor]:
        """Returns metrics that need the map, (B,) each."""


@dataclass(frozen=True)
class Argoverse2Challenge:
    """Single-agent motion forecasting."""

    classes: Sequence[str] = OBJECT_TYPES
    file_name: str = argoverse2.FILE_NAME

    def rows(self, forecast: Forecast, batch: Batch) -> list[argoverse2.TrackForecast]:
        """Returns one entry a track, in the city's frame."""
        names = zip(batch["scenario_id"], batch["track_id"], strict=True)
        return [
            argoverse2.TrackForecast(scenario, track, modes, probabilities)
            for (scenario, track), (modes, probabilities) in zip(names, _in_map(forecast, batch), strict=True)
        ]

    def file(self, rows: Sequence[argoverse2.TrackForecast]) -> bytes:
        """Returns the parquet file."""
        return argoverse2.submission(rows)

    def map_metrics(self, forecast: Forecast, batch: Batch) -> Mapping[str, Tensor]:
        """Has none: the challenge's drivable area compliance is not part of its ranking."""
        return {}


@dataclass(frozen=True)
class NuscenesChallenge:
    """Prediction of vehicles."""

    tree: SourceTree
    classes: Sequence[str] = CLASSES
    file_name: str = nuscenes.FILE_NAME

    def rows(self, forecast: Forecast, batch: Batch) -> list[nuscenes.AgentForecast]:
        """Returns one entry an agent, in the map's frame."""
        names = zip(batch["instance"], batch["sample"], strict=True)
        return [
            nuscenes.AgentForecast(instance, sample, modes, probabilities)
            for (instance, sample), (modes, probabilities) in zip(names, _in_map(forecast, batch), strict=True)
        ]

    def file(self, rows: Sequence[nuscenes.AgentForecast]) -> bytes:
        """Returns the JSON file."""
        return nuscenes.submission(rows)

    def map_metrics(self, forecast: Forecast, batch: Batch) -> Mapping[str, Tensor]:
        """Returns OffRoadRate, asked of the map expansion."""
        cities = [read_city_map(self.tree, location).drivable_at() for location in batch["location"]]
        modes = (modes for modes, _ in _in_map(forecast, batch))
        rates = [off_road_rate(mine, drivable_at) for mine, drivable_at in zip(modes, cities, strict=True)]
        return {"OffRoadRate": torch.tensor(rates, dtype=torch.float64)}


def challenge_of(config: DistillConfig) -> Challenge:
    """Returns the evaluation of `config.benchmark`; raises BadConfig where the config names none."""
    if config.benchmark == "argoverse2":
        return Argoverse2Challenge()
    if config.benchmark == "nuscenes":
        return NuscenesChallenge(FolderTree(mode_of("nuscenes").source_root(config)))
    raise BadConfig(f"benchmark: found {config.benchmark!r}, expected argoverse2 or nuscenes; name the one to evaluate")


def baseline_forecasts(batch: Batch, dt_s: float) -> dict[str, Forecast]:
    """Returns what must be beaten, by name; the oracle is a bound and cannot be submitted."""
    state, steps = baselines.Kinematics.of(batch["kinematics"]), batch["target_xy"].shape[1]
    paths = {
        "constant velocity": baselines.constant_velocity(state, steps, dt_s),
        "constant velocity and heading": baselines.constant_velocity_heading(state, steps, dt_s),
        "physics oracle": baselines.physics_oracle(state, truth_of(batch), dt_s),
    }
    return {name: baselines.one_mode(path) for name, path in paths.items()}


def _in_map(forecast: Forecast, batch: Batch) -> list[tuple[Any, Any]]:
    """Returns (modes (K, T, 2), probabilities (K,)) of each agent in the map's frame, float64, exactly normalised."""
    found = []
    probabilities = forecast.probabilities.double().cpu()
    normalised = probabilities / probabilities.sum(dim=1, keepdim=True)
    for modes, weights, pose in zip(forecast.trajectories.double().cpu(), normalised, batch["pose"].cpu(), strict=True):
        x, y, yaw = pose.tolist()
        found.append((AgentFrame(x, y, yaw).points_out(modes.numpy()), weights.numpy()))
    return found
