"""Sixteen pictures and sixteen past poses to tokens: one ResNet for every picture, one line of features a pose.

Shapes: B batch, C cameras, F frames a camera, H and W pixels, P poses, D the student's width.
"""

import timm
import torch
from torch import nn

from lead_trainer.contract.samples import Batch
from lead_trainer.recipes.distill.config import CAMERAS, FRAMES_PER_CAMERA, DistillConfig

TOKENS_PER_SIDE = 4  # a picture becomes 4 x 4 tokens
POSE_FEATURES = 4  # x, y, sin and cos of yaw
POSITION_SCALE_M = 10.0  # metres that become 1 at the input
_MEAN = (0.485, 0.456, 0.406)  # of ImageNet, which backbone weights are trained with
_SPREAD = (0.229, 0.224, 0.225)


class CameraEncoder(nn.Module):
    """Pictures and ego history to (B, tokens, D)."""

    mean: torch.Tensor
    spread: torch.Tensor

    def __init__(self, config: DistillConfig) -> None:
        super().__init__()
        width = config.size.width
        self.backbone = timm.create_model(config.size.backbone, features_only=True, out_indices=(-1,))
        self.projection = nn.Linear(self.backbone.feature_info.channels()[-1], width)
        self.place = nn.Parameter(torch.zeros(TOKENS_PER_SIDE**2, width))
        self.camera = nn.Parameter(torch.zeros(len(CAMERAS), 1, 1, width))
        self.time = nn.Parameter(torch.zeros(FRAMES_PER_CAMERA, 1, width))
        self.pose = nn.Linear(POSE_FEATURES, width)
        self.pose_time = nn.Parameter(torch.zeros(config.horizon.past, width))
        self.register_buffer("mean", torch.tensor(_MEAN).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("spread", torch.tensor(_SPREAD).view(1, 3, 1, 1), persistent=False)
        for parameter in (self.place, self.camera, self.time, self.pose_time):
            nn.init.normal_(parameter, std=0.02)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Reads `frames` (B, C, F, 3, H, W) uint8 and `history` (B, P, 4) float32: x, y in metres, sin, cos of yaw."""
        return torch.cat([self._pictures(batch["frames"]), self._poses(batch["history"])], 1)

    def _pictures(self, frames_BCF3HW: torch.Tensor) -> torch.Tensor:
        batch, cameras, frames = frames_BCF3HW.shape[:3]
        pictures = frames_BCF3HW.flatten(0, 2).float() / 255.0
        features: torch.Tensor
        (features,) = self.backbone((pictures - self.mean) / self.spread)
        pooled = nn.functional.adaptive_avg_pool2d(features, TOKENS_PER_SIDE).flatten(2).transpose(1, 2)
        tokens: torch.Tensor = self.projection(pooled).view(batch, cameras, frames, TOKENS_PER_SIDE**2, -1)
        return (tokens + self.place + self.camera + self.time).flatten(1, 3)

    def _poses(self, history_BP4: torch.Tensor) -> torch.Tensor:
        scale = history_BP4.new_tensor([POSITION_SCALE_M, POSITION_SCALE_M, 1.0, 1.0])
        tokens: torch.Tensor = self.pose(history_BP4 / scale) + self.pose_time
        return tokens
