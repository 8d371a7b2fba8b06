"""Both sensors' grids as one: side by side, then residual blocks that see ever farther."""

import torch
from torch import nn

from lead_trainer.blocks.conv_blocks import ResidualBlock, run_stages


class Fusion(nn.Module):
    """Maps grids (B, C1, G, G) of cameras and (B, C2, G, G) of lidar to (B, C, G, G)."""

    def __init__(self, camera: int, lidar: int, channels: int, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            ResidualBlock(camera + lidar if number == 0 else channels, channels, dilation=2**number)
            for number in range(blocks)
        )
        self.recompute = False

    def forward(self, camera: torch.Tensor, lidar: torch.Tensor) -> torch.Tensor:
        """Returns the grid of both."""
        return run_stages(self.blocks, torch.cat([camera, lidar.to(camera.dtype)], 1), recompute=self.recompute)
