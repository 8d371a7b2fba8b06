"""The heat map that a detector shall show: a Gaussian of each box around the middle of its centre's cell."""

import torch

from lead_trainer.recipes.nuplan.network.grid import middles

SIGMA_OF_SIDE, LEAST_CELLS = 1 / 6, 0.6  # standard deviation: of the box's longer side, and at least so many cells


@torch.no_grad()
def centre_heat(
    boxes: torch.Tensor, kinds: torch.Tensor, shown: torch.Tensor, number: torch.Tensor, range_m: float, cells: int
) -> torch.Tensor:
    """Returns the heat map (B, 3, G, G) of boxes (B, A, 7) of these kinds, if shown, in cells of these numbers (B, A).

    1 in the cells of centres and below elsewhere; where boxes overlap the greater counts.
    """
    side = 2 * range_m / cells
    sigma = (boxes[..., 2:4].amax(-1) * SIGMA_OF_SIDE).clamp(min=LEAST_CELLS * side)[..., None]
    place = middles(cells, range_m, boxes)
    ahead = torch.exp(-0.5 * ((place - place[number // cells][..., None]) / sigma).square())
    left = torch.exp(-0.5 * ((place - place[number % cells][..., None]) / sigma).square())
    found = []
    for kind in range(3):
        own = (shown & (kinds == kind))[..., None].to(ahead.dtype)
        found.append(torch.einsum("bai,baj->baij", ahead * own, left).amax(1))
    return torch.stack(found, 1)
