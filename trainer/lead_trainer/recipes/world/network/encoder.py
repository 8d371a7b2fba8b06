"""Pictures to latents: a small residual network, self-attention over its last map, its mean, and two layers."""

from itertools import pairwise

import torch
from torch import nn

from lead_trainer.blocks.conv_blocks import ResidualBlock, group_norm, run_stages
from lead_trainer.recipes.world.model_keys import ModelKeys

STEM_STRIDE = 4  # of the 7x7 convolution and the pooling together


class SpatialAttention(nn.Module):
    """Multi-head self-attention over the places of a map, with a residual."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.attention = nn.MultiheadAttention(channels, heads, batch_first=True)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W) to the same shape."""
        places = self.norm(features.flatten(2).transpose(1, 2))
        mixed = self.attention(places, places, places, need_weights=False)[0]
        attended: torch.Tensor = features + mixed.transpose(1, 2).reshape(features.shape)
        return attended


class Encoder(nn.Module):
    """A latent (N, latent_dim) of each picture (N, 3, H, W).

    `latent_norm: batch` normalises each number of the latent over the pictures of the batch. Without that the loss is
    least, at first, where every picture has the same latent and the decoder shows their mean.
    """

    def __init__(self, model: ModelKeys) -> None:
        super().__init__()
        widths, last = model.encoder.stages, model.encoder.stages[-1]
        self.stem = nn.Sequential(
            nn.Conv2d(3, widths[0], 7, 2, 3, bias=False), group_norm(widths[0]), nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )  # fmt: skip
        self.stages = nn.ModuleList(
            nn.Sequential(ResidualBlock(inner, outer, 1 if number == 0 else 2), ResidualBlock(outer, outer))
            for number, (inner, outer) in enumerate(pairwise(widths))
        )
        self.attention = SpatialAttention(last, model.encoder.num_heads)
        self.head = nn.Sequential(nn.Linear(last, last), nn.ReLU(inplace=True), nn.Linear(last, model.latent_dim))
        self.norm = (
            nn.BatchNorm1d(model.latent_dim, affine=False) if model.encoder.latent_norm == "batch" else nn.Identity()
        )
        self.recompute = False

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Returns the latents (N, latent_dim), float32, of pictures (N, 3, H, W) in [-1, 1]."""
        features = run_stages([self.stem, *self.stages, self.attention], pictures, recompute=self.recompute)
        # The spread over a batch is small beside the mean at first: half precision would lose it.
        with torch.autocast(pictures.device.type, enabled=False):
            latents: torch.Tensor = self.norm(self.head(features.float().mean((2, 3))))
        return latents
