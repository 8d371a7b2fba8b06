"""TFv6, the network of the recipe: fused backbone, perception heads, radar detector and, in posttraining, the planner.

`build_model(config)` is the way in. Parameter names, order and shapes are LEAD's, so weights pass in both directions.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from lead_trainer.blocks.fp32_norms import keep_norms_in_fp32
from lead_trainer.blocks.stages import load_backbone_weights
from lead_trainer.recipes.backbone_file import backbone_state
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.network.fusion_backbone import BackboneFeatures, FusionBackbone
from lead_trainer.recipes.lead.network.perception_heads import (
    BevSemanticDecoder,
    CenterNetDecoder,
    CenterNetMaps,
    PerspectiveDecoder,
)
from lead_trainer.recipes.lead.network.planner import Plan, PlanningDecoder
from lead_trainer.recipes.lead.network.radar_detector import RadarDetections, RadarDetector

Head = TypeVar("Head", bound=nn.Module)


@dataclass(frozen=True)
class Predictions:
    """Outputs of one forward pass; None where the config has no such head."""

    features: BackboneFeatures
    semantic: Tensor | None  # (B, classes, h, w) logits
    depth: Tensor | None  # (B, h, w) metres
    bev_semantic: Tensor | None  # (B, classes, H, W) logits
    center_net: CenterNetMaps | None
    radar: RadarDetections | None
    plan: Plan | None
    autocast_dtype: torch.dtype  # fp32 without mixed precision
    bev_semantic_navsim: Tensor | None = None  # (B, classes of NavSim, H, W) logits
    center_net_navsim: CenterNetMaps | None = None


class TFv6(nn.Module):
    """Perceives and plans from cameras, LiDAR and radar."""

    def __init__(self, config: LeadConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = FusionBackbone(config)
        image, bev = self.backbone.image_channels, self.backbone.bev_channels
        carla, navsim = config.use_carla_data, config.use_navsim_data
        classes = config.num_semantic_classes
        self.semantic_decoder = PerspectiveDecoder(config, image, classes) if config.use_semantic and carla else None
        self.depth_decoder = PerspectiveDecoder(config, image, 1) if config.use_depth and carla else None
        maps, navsim_maps = config.num_bev_semantic_classes, config.navsim_num_bev_semantic_classes
        self.bev_semantic_decoder = _made(BevSemanticDecoder, config, maps, config.use_bev_semantic and carla)
        self.bev_semantic_decoder_navsim = _made(
            BevSemanticDecoder, config, navsim_maps, config.use_bev_semantic and navsim
        )
        boxes, navsim_boxes = config.num_bb_classes, config.navsim_num_bb_classes
        self.center_net_decoder = _made(CenterNetDecoder, config, boxes, config.detect_boxes and carla)
        self.center_net_decoder_navsim = _made(CenterNetDecoder, config, navsim_boxes, config.detect_boxes and navsim)
        grid_heads = (self.bev_semantic_decoder, self.bev_semantic_decoder_navsim,
                      self.center_net_decoder, self.center_net_decoder_navsim)  # fmt: skip
        if all(head is None for head in grid_heads):
            self.backbone.freeze_pyramid()
        self.radar_detector = RadarDetector(config, bev) if config.detects_radar else None
        self.planning_decoder = PlanningDecoder(config, bev) if config.use_planning_decoder else None

    def forward(self, batch: Mapping[str, Tensor]) -> Predictions:
        """Reads rgb, rasterized_lidar, radar, speed and, with the planner, command and target points."""
        features = self.backbone(batch["rgb"], None if self.config.LTF else batch["rasterized_lidar"])
        radar = None
        if self.radar_detector is not None:
            radar = self.radar_detector(features.bev, batch["radar"], batch["speed"])
        plan = None
        if self.planning_decoder is not None:
            plan = self.planning_decoder(features.bev, radar, batch)
        return Predictions(
            features=features,
            semantic=self.semantic_decoder(features.image) if self.semantic_decoder is not None else None,
            depth=self.depth_decoder(features.image)[:, 0] if self.depth_decoder is not None else None,
            bev_semantic=_run(self.bev_semantic_decoder, features.bev_grid),
            bev_semantic_navsim=_run(self.bev_semantic_decoder_navsim, features.bev_grid),
            center_net=_run(self.center_net_decoder, features.bev_grid),
            center_net_navsim=_run(self.center_net_decoder_navsim, features.bev_grid),
            radar=radar,
            plan=plan,
            autocast_dtype=_autocast_dtype(features.bev.device.type),
        )


def _made(head: Callable[[LeadConfig, int], Head], config: LeadConfig, classes: int, wanted: bool) -> Head | None:
    return head(config, classes) if wanted else None


def _run(head: nn.Module | None, features: Tensor) -> Any:
    return head(features) if head is not None else None


def build_model(config: LeadConfig) -> TFv6:
    """Returns the network with fresh weights from the global torch generator.

    The image backbone starts from `backbone_weights` if they are named; nothing is downloaded.
    """
    model = TFv6(config)
    if config.backbone_weights:
        state = backbone_state(config.backbone_weights, config.backbone_weights_sha256, os.environ)
        load_backbone_weights(model.backbone.image_encoder, state, config.backbone_weights)
    if config.freeze_backbone:
        model.backbone.requires_grad_(False)
    if config.channel_last:
        model = model.to(memory_format=torch.channels_last)
    keep_norms_in_fp32(model)
    return model


def _autocast_dtype(device: str) -> torch.dtype:
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32
