"""Losses of predicted ways: each teaches the mode that is nearest on average, and the scores to name it.

Shapes: N agents, K modes, T steps. Agents without a valid step are left out before.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional as F


@dataclass(frozen=True)
class WayLosses:
    """Each a scalar, averaged over agents."""

    nll: torch.Tensor  # of x and y under a Gaussian, averaged over steps
    ade: torch.Tensor  # metres
    fde: torch.Tensor  # metres, at the last valid step
    modes: torch.Tensor  # cross-entropy of the scores


def best_mode(places: torch.Tensor, truth: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """Returns the mode (N,) with the least mean distance of places (N, K, T, 2) to truth (N, T, 2) at valid steps."""
    counted = valid[:, None].to(places.dtype)
    distance = (places.detach() - truth[:, None]).norm(dim=-1)
    nearest: torch.Tensor = ((distance * counted).sum(-1) / counted.sum(-1).clamp(min=1)).argmin(1)
    return nearest


def way_losses(
    places: torch.Tensor, log_sigma: torch.Tensor, scores: torch.Tensor, truth: torch.Tensor, valid: torch.Tensor
) -> WayLosses:
    """Returns the losses of places and log sigma (N, K, T, 2), scores (N, K), with truth (N, T, 2), valid (N, T)."""
    best = best_mode(places, truth, valid)
    place, spread = of_mode(places, best), of_mode(log_sigma, best)
    each_step = valid.to(place.dtype)
    steps = each_step.sum(1).clamp(min=1)
    error = place - truth
    surprise = 0.5 * (error * (-spread).exp()).square() + spread + 0.5 * torch.log(error.new_tensor(2 * torch.pi))
    distance = torch.where(valid, safe_norm(error), 0.0)
    last = valid.shape[1] - 1 - valid.flip(1).to(torch.int8).argmax(1)
    return WayLosses(
        nll=((surprise.sum(-1) * each_step).sum(1) / steps).mean(),
        ade=(distance.sum(1) / steps).mean(),
        fde=distance.gather(1, last[:, None]).mean(),
        modes=F.cross_entropy(scores, best),
    )


def of_mode(values: torch.Tensor, mode: torch.Tensor) -> torch.Tensor:
    """Returns values (N, K, ...) of one mode (N,) each: (N, ...)."""
    return values[torch.arange(len(mode), device=mode.device), mode]


def safe_norm(difference: torch.Tensor) -> torch.Tensor:
    """Returns the length of the last axis, whose gradient at 0 is 0."""
    square = difference.square().sum(-1)
    return torch.where(square > 0, square.clamp(min=1e-24).sqrt(), 0.0)
