"""A raster and an agent's past to tokens: one ResNet over the picture, one line of features a past pose.

Shapes: B batch, H and W pixels, P past poses, D the student's width.
"""

import timm
import torch
from torch import Tensor, nn

from lead_trainer.contract.samples import Batch
from lead_trainer.recipes.distill.config import DistillConfig

TOKENS_PER_SIDE = 7  # 224 pixels of a ResNet's last stage
POSE_FEATURES = 5  # x, y, sin and cos of yaw, seen
POSITION_SCALE_M = 10.0
_MEAN, _SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, which backbone weights are trained with


class RasterEncoder(nn.Module):
    """Tokens of the picture, then of the past poses: (B, 49 + P, D)."""

    def __init__(self, config: DistillConfig) -> None:
        super().__init__()
        width = config.size.width
        self.backbone = timm.create_model(config.size.backbone, features_only=True, out_indices=(-1,))
        self.projection = nn.Linear(self.backbone.feature_info.channels()[-1], width)
        self.place = nn.Parameter(torch.randn(TOKENS_PER_SIDE**2, width) * 0.02)
        self.pose = nn.Linear(POSE_FEATURES, width)
        self.pose_time = nn.Parameter(torch.randn(config.horizon.past, width) * 0.02)
        self.register_buffer("mean", torch.tensor(_MEAN).view(3, 1, 1), persistent=False)
        self.register_buffer("spread", torch.tensor(_SPREAD).view(3, 1, 1), persistent=False)

    def forward(self, batch: Batch) -> Tensor:
        """Reads `raster` (B, 3, H, W) uint8, `history` (B, P, 4) and `history_seen` (B, P)."""
        (features,) = self.backbone((batch["raster"].float() / 255.0 - self.mean) / self.spread)
        pooled = nn.functional.adaptive_avg_pool2d(features, TOKENS_PER_SIDE).flatten(2).transpose(1, 2)
        scale = batch["history"].new_tensor([POSITION_SCALE_M, POSITION_SCALE_M, 1.0, 1.0])
        poses = torch.cat([batch["history"] / scale, batch["history_seen"][..., None].float()], dim=-1)
        return torch.cat([self.projection(pooled) + self.place, self.pose(poses) + self.pose_time], dim=1)
