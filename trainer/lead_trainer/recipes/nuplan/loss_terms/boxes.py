"""Losses of detection: a focal loss of the centres' heat map, and distances of the boxes at the true centres."""

import torch
from torch.nn import functional as F

# One metre per second of velocity counts as much as so many metres of place or so many radians of direction.
VELOCITY_WEIGHT = 0.2
BOX_WEIGHTS = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, VELOCITY_WEIGHT, VELOCITY_WEIGHT)


def centre_focal(logits: torch.Tensor, target: torch.Tensor, counted: torch.Tensor | None = None) -> torch.Tensor:
    """Returns the penalty-reduced focal loss (Law and Deng 2018; alpha 2, beta 4) of a heat map (B, K, G, G).

    The sum over cells divided by the number of centres, the cells whose target is 1. `counted` (B,) leaves out samples.
    """
    chance, rest = logits.sigmoid(), (-logits).sigmoid()
    is_centre = (target == 1).to(logits.dtype)
    at_centre = -F.logsigmoid(logits) * rest.square() * is_centre
    elsewhere = -F.logsigmoid(-logits) * chance.square() * (1 - target).pow(4) * (1 - is_centre)
    kept = torch.ones_like(logits[:, :1, :1, :1]) if counted is None else counted.view(-1, 1, 1, 1).to(logits.dtype)
    return ((at_centre + elsewhere) * kept).sum() / (is_centre * kept).sum().clamp(min=1)


def box_distance(found: torch.Tensor, truth: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """Returns the mean absolute error of coded boxes (B, A, 8) where `valid` (B, A); 0 where there is none."""
    weights = found.new_tensor(BOX_WEIGHTS)
    each = ((found - truth).abs() * weights).mean(-1)
    return torch.where(valid, each, 0.0).sum() / valid.sum().clamp(min=1)
