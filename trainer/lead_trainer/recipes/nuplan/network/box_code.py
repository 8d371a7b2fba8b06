"""Boxes as the numbers that a cell holds, and back; and the boxes that a heat map shows.

A box is (x, y, length, width, yaw, vx, vy) in the vehicle's frame. A cell holds eight numbers of the box whose centre
lies in it: how far the centre lies from its middle, in cells; logarithms of length and width; sine and cosine of the
yaw; vx and vy.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from lead_trainer.recipes.nuplan.network.grid import flat_cell

CODE = 8
SMALLEST_M, LARGEST_M = 0.05, 50.0  # sides of boxes


@dataclass(frozen=True)
class Agents:
    """Boxes of a batch, (B, A, …); what is not valid only fills up."""

    boxes: torch.Tensor  # (B, A, 7)
    kinds: torch.Tensor  # (B, A) int64, of CLASSES
    valid: torch.Tensor  # (B, A) bool
    scores: torch.Tensor  # (B, A); 1 for true ones


def encoded(boxes: torch.Tensor, range_m: float, cells: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns code (..., 8), number of the centre's cell (...), and whether it lies on the grid, of boxes (..., 7)."""
    number, inside = flat_cell(boxes[..., :2], range_m, cells)
    side = boxes[..., 2:4].clamp(SMALLEST_M, LARGEST_M).log()
    offset = (boxes[..., :2] - _middle(number, range_m, cells)) * (cells / (2 * range_m))
    yaw = boxes[..., 4:5]
    return torch.cat([offset, side, yaw.sin(), yaw.cos(), boxes[..., 5:7]], -1), number, inside


def decoded(code: torch.Tensor, number: torch.Tensor, range_m: float, cells: int) -> torch.Tensor:
    """Returns the boxes (..., 7) of codes (..., 8) in cells of these numbers (...)."""
    place = code[..., :2] * (2 * range_m / cells) + _middle(number, range_m, cells)
    side = code[..., 2:4].exp().clamp(SMALLEST_M, LARGEST_M)
    yaw = torch.atan2(code[..., 4:5], code[..., 5:6])
    return torch.cat([place, side, yaw, code[..., 6:8]], -1)


def at_cells(grid: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
    """Returns what a grid (B, C, G, G) holds in cells (B, A): (B, A, C)."""
    return grid.flatten(2).gather(2, number[:, None].expand(-1, grid.shape[1], -1)).transpose(1, 2)


@torch.no_grad()
def shown_boxes(heat: torch.Tensor, boxes: torch.Tensor, range_m: float, most: int, least_score: float) -> Agents:
    """Returns the `most` surest boxes that a heat map (B, K, G, G) of logits shows, with codes (B, 8, G, G).

    A box is where a cell is the surest of its neighbours; of equal scores the cell of the lower number comes first.
    """
    cells = heat.shape[-1]
    peaks = heat == F.max_pool2d(heat, 3, 1, 1)
    scores = torch.where(peaks, heat.sigmoid(), -1.0).flatten(1)
    order = torch.sort(scores, dim=1, descending=True, stable=True)
    best, where = order.values[:, :most], order.indices[:, :most]
    kinds, number = where // cells**2, where % cells**2
    found = decoded(at_cells(boxes, number), number, range_m, cells)
    return Agents(found, kinds, best >= least_score, best.clamp(min=0))


def _middle(number: torch.Tensor, range_m: float, cells: int) -> torch.Tensor:
    cell = torch.stack([number // cells, number % cells], -1)
    return (cell + 0.5) * (2 * range_m / cells) - range_m
