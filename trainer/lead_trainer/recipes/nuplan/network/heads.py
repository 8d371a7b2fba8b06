"""What is read off the grid cell by cell: centres and boxes, map layers, occupancy."""

from collections.abc import Mapping

import torch
from torch import nn

from lead_trainer.blocks.conv_blocks import group_norm
from lead_trainer.recipes.nuplan.data_keys import CLASSES, LAYERS
from lead_trainer.recipes.nuplan.network.box_code import CODE

RARE = -2.19  # logit of a chance of 0.1: most cells are no centre


class GridHeads(nn.Module):
    """Maps a grid (B, C, G, G) to what its cells are.

    `heat` (B, 3, G, G), `boxes` (B, 8, G, G), `layers` (B, 5, G, G), `occupied` (B, G, G). All but `boxes` are logits.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        outputs = {"heat": len(CLASSES), "boxes": CODE, "layers": len(LAYERS), "occupied": 1}
        self.heads = nn.ModuleDict({name: _head(channels, count) for name, count in outputs.items()})
        nn.init.constant_(self.heads["heat"][-1].bias, RARE)  # type: ignore[index]

    def forward(self, grid: torch.Tensor) -> Mapping[str, torch.Tensor]:
        """Returns each head's output."""
        found = {name: head(grid).float() for name, head in self.heads.items()}
        return {**found, "occupied": found["occupied"][:, 0]}


def _head(channels: int, outputs: int) -> nn.Sequential:
    hidden = nn.Conv2d(channels, channels, 3, padding=1)
    return nn.Sequential(hidden, group_norm(channels), nn.ReLU(inplace=True), nn.Conv2d(channels, outputs, 1))
