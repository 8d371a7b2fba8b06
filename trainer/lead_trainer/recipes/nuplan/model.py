"""The model: pictures and points to one grid seen from above, and what is read off it.

Shapes: B samples, K cameras, A agents, G cells a side, M modes, T steps. Frames and units are those of `dataset`.
"""

import os
from collections.abc import Mapping

import structlog
import torch
from torch import nn

from lead_trainer.blocks.stages import load_backbone_weights
from lead_trainer.contract.samples import Batch
from lead_trainer.contract.step import Facts
from lead_trainer.recipes.backbone_file import backbone_state
from lead_trainer.recipes.nuplan.config import NuplanConfig
from lead_trainer.recipes.nuplan.data_keys import TASKS
from lead_trainer.recipes.nuplan.network.box_code import Agents, shown_boxes
from lead_trainer.recipes.nuplan.network.fusion import Fusion
from lead_trainer.recipes.nuplan.network.heads import GridHeads
from lead_trainer.recipes.nuplan.network.image_encoder import IMAGENET_MEAN, IMAGENET_STD, ImageEncoder
from lead_trainer.recipes.nuplan.network.lift_splat import LiftSplat
from lead_trainer.recipes.nuplan.network.pillars import Pillars
from lead_trainer.recipes.nuplan.network.ways import WayHead, Ways

log = structlog.get_logger(__name__)

Outputs = Mapping[str, torch.Tensor]
MEAN_FACT, STD_FACT = "image_mean", "image_std"  # (3,) of values in 0 … 1


class NuplanModel(nn.Module):
    """Encoders of both sensors, their fusion, and four heads."""

    def __init__(self, config: NuplanConfig, facts: Facts) -> None:
        super().__init__()
        keys, data = config.model, config.data
        mean, std = facts.get(MEAN_FACT, IMAGENET_MEAN), facts.get(STD_FACT, IMAGENET_STD)
        self.keys, self.data = keys, data
        self.image = ImageEncoder(keys, mean, std)
        self.lift = LiftSplat(keys, data.range_m, data.grid_cells)
        self.pillars = Pillars(keys, data.range_m, data.pillar_cells, data.grid_cells)
        self.fusion = Fusion(keys.image_channels, keys.pillar_channels, keys.bev_channels, keys.bev_blocks)
        self.heads = GridHeads(keys.bev_channels)
        self.ways = WayHead(keys, data)
        if config.loss.weighting == "learned":
            self.log_variances = nn.ParameterDict({task: nn.Parameter(torch.zeros(())) for task in TASKS})

    def forward(self, batch: Batch) -> Outputs:
        """Returns the heads' outputs, and the ways of the true boxes.

        `heat` (B, 3, G, G), `boxes` (B, 8, G, G) of `box_code`, `layers` (B, 5, G, G), `occupied` (B, G, G); `places`
        (B, 1 + A, M, T, 2) and what else `WayHead` gives, the ego's first; `grid` (B, C, G, G), for `ways_of`.
        """
        grid = self.grid(batch)
        true = Agents(
            batch["boxes"], batch["box_class"], batch["agent_valid"], batch["agent_valid"].to(batch["boxes"].dtype)
        )
        return {**self.heads(grid), **self.ways_of(grid, true, batch["ego_state"]), "grid": grid}

    def grid(self, batch: Batch) -> torch.Tensor:
        """Returns the grid (B, C, G, G) of both sensors."""
        pictures = batch["images"]
        depth, features = self.image(pictures.flatten(0, 1))
        places = self.lift.places(
            batch["calibration"],
            batch["intrinsics"],
            batch["camera_to_vehicle"],
            batch["picture_to_sweep"],
            (depth.shape[2], depth.shape[3]),
        )
        seen = self.lift(depth, features, places, pictures.shape[1])
        fused: torch.Tensor = self.fusion(seen, self.pillars(batch["points"], batch["point_count"]))
        return fused

    def detected(self, outputs: Outputs) -> Agents:
        """Returns the boxes that the heat map shows, at most `max_detections` a sample."""
        keys = self.keys
        return shown_boxes(outputs["heat"], outputs["boxes"], self.data.range_m, keys.max_detections, keys.least_score)

    def ways_of(self, grid: torch.Tensor, agents: Agents, ego_state: torch.Tensor) -> Ways:
        """Returns the ways of agents, true or detected, and the ego's first."""
        ways: Ways = self.ways(grid, agents, ego_state)
        return ways

    def save_memory(self) -> None:
        """Keeps only the input of each stage of the image network and of the fusion, and runs it again."""
        self.image.recompute = self.fusion.recompute = True


def build_model(config: NuplanConfig, facts: Facts) -> NuplanModel:
    """Returns a model with fresh weights, those of the image network from a file where one is named."""
    model = NuplanModel(config, facts)
    if config.backbone_weights:
        state = backbone_state(config.backbone_weights, config.backbone_weights_sha256, os.environ)
        load_backbone_weights(model.image.network, state, config.backbone_weights)
        count = len(model.image.network.state_dict())
        log.info("image network begins with given weights", source=config.backbone_weights, tensors=count)
    return model
