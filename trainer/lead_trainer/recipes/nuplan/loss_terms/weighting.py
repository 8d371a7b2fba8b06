"""How the losses of tasks become one: by fixed weights, or by weights that are learned (Kendall et al. 2018)."""

from collections.abc import Mapping

import torch


def fixed_sum(losses: Mapping[str, torch.Tensor], weights: Mapping[str, float]) -> torch.Tensor:
    """Returns the weighted sum of at least one loss."""
    return torch.stack([weights[task] * loss for task, loss in losses.items()]).sum()


def learned_sum(losses: Mapping[str, torch.Tensor], log_variances: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the sum of exp(-s) L + s; a task without a loss adds nothing, its s neither."""
    terms = [torch.exp(-log_variances[task]) * loss + log_variances[task] for task, loss in losses.items()]
    return torch.stack(terms).sum()
