"""Means over the samples that have labels, and the number format of losses."""

from collections.abc import Mapping

import torch
from torch import Tensor

CARLA = 1  # source_dataset of samples with perception labels


def perception_samples(batch: Mapping[str, Tensor]) -> Tensor:
    """Returns the (B,) mask of samples with perception labels."""
    return batch["source_dataset"] == CARLA


def mean_over(samples: Tensor, per_sample: Tensor) -> Tensor:
    """Returns the mean of `per_sample` (B,) over the chosen `samples` (B,); 0 when none is."""
    return torch.where(samples, per_sample, 0).sum() / samples.sum().clamp(min=1)


def full_precision(x: Tensor) -> Tensor:
    """Returns `x` in fp32 if it came in half precision."""
    return x.float() if x.is_floating_point() and x.itemsize < 4 else x
