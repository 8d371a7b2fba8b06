"""Where places lie on a square grid around the rear axle: rows run ahead, columns to the left.

Cell [i, j] of a grid of `cells` a side has its middle at ((i + 0.5) c - range, (j + 0.5) c - range) metres ahead and to
the left, with c = 2 range / cells. Cameras, points, labels and boxes all take their cells from here.
"""

import torch
from torch.nn import functional as F


def cell_of(places: torch.Tensor, range_m: float, cells: int) -> torch.Tensor:
    """Returns row and column (..., 2) int64 of places (..., 2), metres; outside of 0 … cells - 1 beyond the grid."""
    return torch.floor((places + range_m) * (cells / (2 * range_m))).long()


def flat_cell(places: torch.Tensor, range_m: float, cells: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the number of each place's cell (...) int64, 0 where it is beyond the grid, and whether it is inside."""
    cell = cell_of(places, range_m, cells)
    inside = ((cell >= 0) & (cell < cells)).all(-1)
    return torch.where(inside, cell[..., 0] * cells + cell[..., 1], 0), inside


def middles(cells: int, range_m: float, like: torch.Tensor) -> torch.Tensor:
    """Returns the middle (cells,) of each row or column, metres."""
    numbers = torch.arange(cells, device=like.device, dtype=torch.float32)
    return (numbers + 0.5) * (2 * range_m / cells) - range_m


def read_at(grid: torch.Tensor, places: torch.Tensor, range_m: float) -> torch.Tensor:
    """Returns what a grid (B, C, G, G) holds at places (B, N, 2), metres, between cells bilinearly: (B, N, C)."""
    where = (places / range_m).flip(-1)[:, :, None]  # grid_sample wants the column first
    found = F.grid_sample(grid, where.to(grid.dtype), mode="bilinear", padding_mode="zeros", align_corners=False)
    return found[..., 0].transpose(1, 2)
