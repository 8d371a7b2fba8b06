"""The two-stream backbone: image and BEV networks that exchange features through a transformer after each stage.

Called by TFv6. Inputs are normalised here; no head is.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lead_trainer.blocks.fusion_transformer import FusionShape, FusionTransformer
from lead_trainer.blocks.stages import STAGES, make_backbone, run_stage, stage_channels, stage_modules
from lead_trainer.recipes.lead.config import LeadConfig

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class BackboneFeatures:
    """What the heads read."""

    image: Tensor  # (B, C, h, w) last image stage
    bev: Tensor  # (B, C, H, W) last BEV stage
    bev_grid: Tensor  # (B, bev_features_chanels, bev_grid_height, bev_grid_width)


class FusionBackbone(nn.Module):
    """Maps a picture and a BEV grid to fused features of both."""

    mean: Tensor
    std: Tensor

    def __init__(self, config: LeadConfig) -> None:
        super().__init__()
        self.config = config
        self.image_encoder = make_backbone(config.image_architecture, 3, "image_architecture")
        self.lidar_encoder = make_backbone(config.lidar_architecture, 2 if config.LTF else 1, "lidar_architecture")
        image, bev = stage_channels(self.image_encoder), stage_channels(self.lidar_encoder)
        self.lidar_channel_to_img = nn.ModuleList(nn.Conv2d(bev[i], image[i], 1) for i in range(STAGES))
        self.img_channel_to_lidar = nn.ModuleList(nn.Conv2d(image[i], bev[i], 1) for i in range(STAGES))
        self.transformers = nn.ModuleList(FusionTransformer(_fusion_shape(config, dim)) for dim in image)
        channels = config.bev_features_chanels
        self.up_conv5 = nn.Conv2d(channels, channels, 3, padding=1)
        self.up_conv4 = nn.Conv2d(channels, channels, 3, padding=1)
        self.c5_conv = nn.Conv2d(bev[-1], channels, 1)
        self.image_channels, self.bev_channels = image[-1], bev[-1]
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(IMAGENET_STD).view(1, 3, 1, 1), persistent=False)

    def forward(self, rgb: Tensor, bev: Tensor | None) -> BackboneFeatures:
        """Maps rgb (B, 3, h, w) in 0..255 and the LiDAR grid (B, 1, H, W), absent under LTF, to features."""
        image = (rgb.to(self.c5_conv.weight.dtype) / 255.0 - self.mean) / self.std
        bev = self._positions(rgb.shape[0]) if bev is None else bev.to(image.dtype)
        if self.config.channel_last:
            image = image.contiguous(memory_format=torch.channels_last)
            bev = bev.contiguous(memory_format=torch.channels_last)
        image_stages, bev_stages = stage_modules(self.image_encoder), stage_modules(self.lidar_encoder)
        for index in range(STAGES):
            image = run_stage(image_stages[index], image)
            bev = run_stage(bev_stages[index], bev)
            image, bev = self.exchange(index, image, bev)
        return BackboneFeatures(image, bev, self._pyramid(bev))

    def freeze_pyramid(self) -> None:
        """Stops the detection grid's layers from learning: no head reads it, and DDP would wait for their gradients."""
        for layer in (self.c5_conv, self.up_conv5, self.up_conv4):
            layer.requires_grad_(False)

    def exchange(self, index: int, image: Tensor, bev: Tensor) -> tuple[Tensor, Tensor]:
        """Adds to both maps what the transformer mixed from their pooled tokens."""
        config = self.config
        image_tokens = _pool(image, (config.img_vert_anchors, config.img_horz_anchors))
        bev_tokens = _pool(bev, (config.lidar_vert_anchors, config.lidar_horz_anchors))
        image_tokens, bev_tokens = self.transformers[index](image_tokens, self.lidar_channel_to_img[index](bev_tokens))
        bev_tokens = self.img_channel_to_lidar[index](bev_tokens)
        return image + _resize(image_tokens, image.shape[2:]), bev + _resize(bev_tokens, bev.shape[2:])

    def _pyramid(self, bev: Tensor) -> Tensor:
        """Lifts the last BEV stage to the detection grid."""
        grid = F.relu(self.c5_conv(bev))
        factor = self.config.bev_upsample_factor
        grid = F.relu(self.up_conv5(_resize(grid, (grid.shape[2] * factor, grid.shape[3] * factor))))
        size = (self.config.bev_grid_height, self.config.bev_grid_width)
        return F.relu(self.up_conv4(_resize(grid, size)))

    def _positions(self, batch: int) -> Tensor:
        """Returns the (B, 2, H, W) grid of row and column positions in [0, 1] that replaces LiDAR under LTF."""
        weight = self.c5_conv.weight
        rows = torch.linspace(0, 1, self.config.lidar_height_pixel, dtype=weight.dtype, device=weight.device)
        columns = torch.linspace(0, 1, self.config.lidar_width_pixel, dtype=weight.dtype, device=weight.device)
        grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij"))
        return grid[None].expand(batch, -1, -1, -1)


def _pool(features: Tensor, size: tuple[int, int]) -> Tensor:
    """Averages blocks down to `size`, by plain pooling where it divides: adaptive pooling is not repeatable on GPUs."""
    height, width = features.shape[2:]
    if height % size[0] or width % size[1]:
        return F.adaptive_avg_pool2d(features, size)
    return F.avg_pool2d(features, (height // size[0], width // size[1]))


def _resize(features: Tensor, size: tuple[int, ...]) -> Tensor:
    return F.interpolate(features, size=tuple(size), mode="bilinear", align_corners=False)


def _fusion_shape(config: LeadConfig, dim: int) -> FusionShape:
    image_tokens = config.img_vert_anchors * config.img_horz_anchors
    return FusionShape(
        dim=dim,
        tokens=image_tokens + config.lidar_vert_anchors * config.lidar_horz_anchors,
        layers=config.n_layer,
        heads=config.n_head,
        mlp_ratio=config.block_exp,
        embedding_dropout=config.embd_pdrop,
        residual_dropout=config.resid_pdrop,
        attention_dropout=config.attn_pdrop,
        init_mean=config.gpt_linear_layer_init_mean,
        init_std=config.gpt_linear_layer_init_std,
        norm_init=config.gpt_layer_norm_init_weight,
    )
