"""Residual convolutions with group norms.

A sample's numbers then do not depend on the other samples of its batch, so accumulation, ranks and a batch cut to fit
into memory change nothing.
"""

from collections.abc import Iterable

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

CHANNELS_A_GROUP = 8


def group_norm(channels: int) -> nn.GroupNorm:
    """Returns a norm over groups of CHANNELS_A_GROUP channels, over all where they do not divide."""
    return nn.GroupNorm(channels // CHANNELS_A_GROUP if channels % CHANNELS_A_GROUP == 0 else 1, channels)


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut (He et al. 2016), with group norms."""

    def __init__(self, inner: int, outer: int, stride: int = 1, dilation: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inner, outer, 3, stride, dilation, dilation, bias=False), group_norm(outer),
            nn.ReLU(inplace=True),
            nn.Conv2d(outer, outer, 3, 1, dilation, dilation, bias=False), group_norm(outer),
        )  # fmt: skip
        same = inner == outer and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(inner, outer, 1, stride, bias=False)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """(N, inner, H, W) to (N, outer, H / stride, W / stride)."""
        return torch.relu(self.body(features) + self.shortcut(features))


def run_stages(stages: Iterable[nn.Module], features: torch.Tensor, *, recompute: bool) -> torch.Tensor:
    """Runs stages in order; with `recompute` each one runs again in the backward pass and keeps its input alone."""
    for stage in stages:
        if recompute and torch.is_grad_enabled():
            features = checkpoint(stage, features, use_reentrant=False)
        else:
            features = stage(features)
    return features
