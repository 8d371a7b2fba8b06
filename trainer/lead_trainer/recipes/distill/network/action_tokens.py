"""Actions as tokens: equal bins over the range a student may act in."""

import torch

from lead_trainer.recipes.distill.config import MAX_ACCELERATION, MAX_CURVATURE

LIMITS = (MAX_ACCELERATION, MAX_CURVATURE)


def bin_of(actions: torch.Tensor, bins: int) -> torch.Tensor:
    """Returns the bin (…, 2) int64 of each action (…, 2); values beyond the limits fall into the outermost bins."""
    limits = actions.new_tensor(LIMITS)
    return ((actions / limits + 1.0) * (0.5 * bins)).floor().long().clamp(0, bins - 1)


def bin_centres(bins: int, device: torch.device | None = None) -> torch.Tensor:
    """Returns the value of every bin's middle, (2, bins)."""
    unit = (torch.arange(bins, device=device, dtype=torch.float32) + 0.5) * (2.0 / bins) - 1.0
    return unit * torch.tensor(LIMITS, device=device)[:, None]


def expected_actions(logits: torch.Tensor) -> torch.Tensor:
    """Returns the mean action (…, 2) of distributions over bins (…, 2, bins); gradients reach every bin."""
    return (logits.float().softmax(-1) * bin_centres(logits.shape[-1], logits.device)).sum(-1)
