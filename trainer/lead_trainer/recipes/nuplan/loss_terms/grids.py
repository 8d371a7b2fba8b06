"""Losses of what is seen in cells: cross-entropy and overlap of map layers, cross-entropy of occupancy."""

import torch
from torch.nn import functional as F


def layer_cross_entropy(logits: torch.Tensor, truth: torch.Tensor, counted: torch.Tensor | None = None) -> torch.Tensor:
    """Returns the mean binary cross-entropy of layers (B, L, G, G) over the counted samples (B,)."""
    each = F.binary_cross_entropy_with_logits(logits, truth.to(logits.dtype), reduction="none").mean((1, 2, 3))
    return _mean(each, counted)


def layer_dice(logits: torch.Tensor, truth: torch.Tensor, counted: torch.Tensor | None = None) -> torch.Tensor:
    """Returns 1 - dice, smoothed by 1, of each sample and layer (B, L, G, G), averaged over the counted samples."""
    chance, truth = logits.sigmoid(), truth.to(logits.dtype)
    both, all_of_them = (chance * truth).sum((2, 3)), chance.sum((2, 3)) + truth.sum((2, 3))
    return _mean((1 - (2 * both + 1) / (all_of_them + 1)).mean(1), counted)


def known_cross_entropy(logits: torch.Tensor, truth: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
    """Returns the mean binary cross-entropy of occupancy (B, G, G) over the known cells."""
    each = F.binary_cross_entropy_with_logits(logits, truth.to(logits.dtype), reduction="none")
    counted = known.to(logits.dtype)
    return (each * counted).sum() / counted.sum().clamp(min=1)


def _mean(each: torch.Tensor, counted: torch.Tensor | None) -> torch.Tensor:
    if counted is None:
        return each.mean()
    return (each * counted.to(each.dtype)).sum() / counted.sum().clamp(min=1)
