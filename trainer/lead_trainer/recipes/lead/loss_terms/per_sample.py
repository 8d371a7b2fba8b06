"""Means over the samples that have labels, and the number format of losses."""

from collections.abc import Mapping

import torch
from torch import Tensor

from lead_trainer.recipes.lead.data_sources import CARLA, DataSource


def samples_of(batch: Mapping[str, Tensor], source: DataSource) -> Tensor:
    """Returns the (B,) mask of the samples of one data set."""
    return batch["source_dataset"] == source.number


def perception_samples(batch: Mapping[str, Tensor]) -> Tensor:
    """Returns the (B,) mask of samples with CARLA's labels."""
    return samples_of(batch, CARLA)


def unlabelled(*predictions: Tensor | None) -> Tensor:
    """Returns a loss of 0 for a batch without any label of these heads, so that every process has their gradients."""
    return torch.stack([prediction.float().sum() * 0 for prediction in predictions if prediction is not None]).sum()


def mean_over(samples: Tensor, per_sample: Tensor) -> Tensor:
    """Returns the mean of `per_sample` (B,) over the chosen `samples` (B,); 0 when none is."""
    return torch.where(samples, per_sample, 0).sum() / samples.sum().clamp(min=1)


def full_precision(x: Tensor) -> Tensor:
    """Returns `x` in fp32 if it came in half precision."""
    return x.float() if x.is_floating_point() and x.itemsize < 4 else x
