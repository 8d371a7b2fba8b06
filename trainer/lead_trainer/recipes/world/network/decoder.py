"""Latents to pictures: one layer to a small map, then stages that double its sides, and tanh."""

import torch
from torch import nn

from lead_trainer.blocks.conv_blocks import ResidualBlock, group_norm, run_stages
from lead_trainer.recipes.world.model_keys import ModelKeys


class Upscale(nn.Module):
    """Doubles the sides of a map by a pixel shuffle (Shi et al. 2016), then refines it."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inner, 4 * outer, 3, 1, 1), nn.PixelShuffle(2), group_norm(outer), nn.SiLU(inplace=True),
            ResidualBlock(outer, outer),
        )  # fmt: skip

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """(N, inner, H, W) to (N, outer, 2 H, 2 W)."""
        larger: torch.Tensor = self.body(features)
        return larger


class Decoder(nn.Module):
    """A picture (N, 3, S, S) in [-1, 1] of each latent (N, latent_dim); S is init_size doubled once a stage."""

    def __init__(self, model: ModelKeys) -> None:
        super().__init__()
        widths, self.size = model.decoder.stages, model.decoder.init_size
        self.enter = nn.Linear(model.latent_dim, widths[0] * self.size**2)
        outer = (*widths[1:], widths[-1])
        self.stages = nn.ModuleList(Upscale(*each) for each in zip(widths, outer, strict=True))
        self.leave = nn.Conv2d(widths[-1], 3, 3, 1, 1)
        self.recompute = False

    def forward(self, latents: torch.Tensor) -> torch.Tensor:
        """Returns pictures, float32."""
        features = self.enter(latents).unflatten(1, (-1, self.size, self.size))
        features = run_stages(self.stages, features, recompute=self.recompute)
        return torch.tanh(self.leave(features).float())
