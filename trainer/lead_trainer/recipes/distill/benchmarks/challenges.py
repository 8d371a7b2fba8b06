"""What evaluating a benchmark needs beside the recipe's mode: baselines, the submission's rows, metrics of the map.

Called by `measure`; one value a benchmark.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lead_trainer.contract.raw_data import SourceTree
from lead_trainer.contract.samples import Batch
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.metrics.forecasting import Forecast
from lead_trainer.metrics.offroad import off_road_rate
from lead_trainer.recipes.distill.benchmarks import baselines
from lead_trainer.recipes.distill.benchmarks.agent_frame import AgentFrame
from lead_trainer.recipes.distill.benchmarks.argoverse2 import submission as argoverse2
from lead_trainer.recipes.distill.benchmarks.argoverse2.drivable_area import drivable_area
from lead_trainer.recipes.distill.benchmarks.argoverse2.scenario import OBJECT_TYPES
from lead_trainer.recipes.distill.benchmarks.evaluation import truth_of
from lead_trainer.recipes.distill.benchmarks.forecasts import AgentForecast
from lead_trainer.recipes.distill.benchmarks.nuscenes import submission as nuscenes
from lead_trainer.recipes.distill.benchmarks.nuscenes.dataset import CLASSES
from lead_trainer.recipes.distill.benchmarks.nuscenes.map_layers import read_city_map
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.distill.modes import mode_of

CONSTANT_VELOCITY = "constant velocity"
ONWARD = "constant velocity and heading"
Road = Callable[[npt.NDArray[np.float64]], float]  # modes (K, T, 2) in the map's frame -> the share that leaves it


@dataclass(frozen=True)
class Challenge:
    """One benchmark's evaluation."""

    tree: SourceTree
    classes: Sequence[str]  # what a batch's `category` counts through
    names: tuple[str, str]  # a batch's keys for the scene and the agent of a submission's row
    file_name: str
    file: Callable[[Sequence[AgentForecast]], bytes]  # the submission
    roads: Callable[[SourceTree, Batch], Iterable[Road]]  # around each agent

    def rows(self, forecast: Forecast, batch: Batch) -> list[AgentForecast]:
        """Returns one entry an agent, in the map's frame."""
        named = zip(*(batch[name] for name in self.names), _in_map(forecast, batch), strict=True)
        return [AgentForecast(scene, agent, *found) for scene, agent, found in named]

    def map_metrics(self, forecast: Forecast, batch: Batch) -> Mapping[str, Tensor]:
        """Returns OffRoadRate, (B,), asked of the map."""
        roads = self.roads(self.tree, batch)
        rates = [road(modes) for (modes, _), road in zip(_in_map(forecast, batch), roads, strict=True)]
        return {"OffRoadRate": torch.tensor(rates, dtype=torch.float64)}


def challenge_of(config: DistillConfig) -> Challenge | None:
    """Returns the evaluation of `config.benchmark`; None for the teacher's clips, which nobody takes submissions of."""
    if config.benchmark == "none":
        return None
    tree = FolderTree(mode_of(config.benchmark).source_root(config), links_may_leave=True)
    if config.benchmark == "argoverse2":
        names = ("scenario_id", "track_id")
        return Challenge(tree, OBJECT_TYPES, names, argoverse2.FILE_NAME, argoverse2.submission, _argoverse2_roads)
    return Challenge(tree, CLASSES, ("sample", "instance"), nuscenes.FILE_NAME, nuscenes.submission, _nuscenes_roads)


def _argoverse2_roads(tree: SourceTree, batch: Batch) -> Iterator[Road]:
    return (drivable_area(tree, route).off_road_rate for route in batch["route"])


def _nuscenes_roads(tree: SourceTree, batch: Batch) -> Iterator[Road]:
    cities = (read_city_map(tree, location) for location in batch["location"])
    return (partial(off_road_rate, drivable_at=city.drivable_at()) for city in cities)


def baseline_forecasts(batch: Batch, dt_s: float) -> dict[str, Forecast]:
    """Returns what must be beaten, by name; the oracle is a bound and cannot be submitted.

    Of the teacher's clips no more is known than the present speed along the heading.
    """
    steps = batch["target_xy"].shape[1]
    if "kinematics" not in batch:
        still = torch.zeros_like(batch["speed"])
        ahead = torch.stack([batch["speed"], still, still, batch["speed"], still], dim=1)
        return {
            ONWARD: baselines.one_mode(baselines.constant_velocity_heading(baselines.Kinematics.of(ahead), steps, dt_s))
        }
    state = baselines.Kinematics.of(batch["kinematics"])
    paths = {
        CONSTANT_VELOCITY: baselines.constant_velocity(state, steps, dt_s),
        ONWARD: baselines.constant_velocity_heading(state, steps, dt_s),
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
