"""Lidar points on the grid: each point's features, their greatest in each pillar, and a small network over pillars."""

import torch
from torch import nn
from torch.nn import functional as F

from lead_trainer.blocks.conv_blocks import group_norm
from lead_trainer.recipes.nuplan.model_keys import ModelKeys
from lead_trainer.recipes.nuplan.network.grid import cell_of, flat_cell

POINT_FEATURES = 7  # place, intensity, ring, and how far from the pillar's middle
RINGS = 32.0


class Pillars(nn.Module):
    """Maps points (B, P, 5) to a grid (B, C, G, G); of each sample the first `count` points are there."""

    def __init__(self, keys: ModelKeys, range_m: float, pillars: int, cells: int) -> None:
        super().__init__()
        self.range_m, self.pillars, self.cells = range_m, pillars, cells
        self.low, self.high = keys.height_range_m
        width = keys.pillar_channels
        # Norms over the channels of a point alone: padding and other samples change nothing.
        self.point = nn.Sequential(nn.Linear(POINT_FEATURES, width, bias=False), nn.LayerNorm(width), nn.ReLU())
        # A kernel of four pillars at a stride of two is centred between the two that make one place.
        halves = pillars >= 2 * cells
        first = nn.Conv2d(width, width, 4, 2, 1) if halves else nn.Conv2d(width, width, 3, 1, 1)
        self.map = nn.Sequential(
            first, group_norm(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, 1, 1), group_norm(width), nn.ReLU(inplace=True),
        )  # fmt: skip

    def forward(self, points: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        """Returns the grid."""
        features: torch.Tensor = self.map(self.pseudo_image(points, count))
        if features.shape[-1] == self.cells:
            return features
        return F.interpolate(features, size=(self.cells, self.cells), mode="bilinear", align_corners=False)

    def pseudo_image(self, points: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        """Returns the greatest feature of each pillar's points, 0 without any: (B, C, pillars, pillars)."""
        samples, most = points.shape[:2]
        number, inside = flat_cell(points[..., :2], self.range_m, self.pillars)
        there = torch.arange(most, device=points.device) < count[:, None]
        kept = there & inside & (points[..., 2] >= self.low) & (points[..., 2] <= self.high)
        offset = torch.arange(samples, device=points.device)[:, None] * self.pillars**2
        rows = (number + offset)[kept]
        features: torch.Tensor = self.point(self._features(points[kept])).float()
        flat = features.new_zeros(samples * self.pillars**2, features.shape[1])
        flat = flat.scatter_reduce(0, rows[:, None].expand_as(features), features, "amax", include_self=True)
        return flat.view(samples, self.pillars, self.pillars, -1).permute(0, 3, 1, 2)

    def _features(self, points: torch.Tensor) -> torch.Tensor:
        side = 2 * self.range_m / self.pillars
        middle = (cell_of(points[:, :2], self.range_m, self.pillars) + 0.5) * side - self.range_m
        scaled = points / points.new_tensor([self.range_m, self.range_m, self.high - self.low, 1.0, RINGS])
        return torch.cat([scaled, (points[:, :2] - middle) / side], 1)
