"""A benchmark's metrics of one batch, for the model and for the baselines alike."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from lead_trainer.metrics.forecasting import Forecast, forecast_metrics
from lead_trainer.metrics.totals import batch_totals, by_class
from lead_trainer.recipes.recipe import Batch


def forecast_of(predictions: Mapping[str, Tensor]) -> Forecast:
    """Returns the student's modes with their probabilities."""
    return Forecast(predictions["xy"].float(), predictions["logits"].float().softmax(dim=1))


def truth_of(batch: Batch) -> Tensor:
    """Returns the true positions, (B, T, 2) float64, NaN where there is none."""
    return torch.where(batch["target_valid"][..., None], batch["target_xy"].double(), torch.nan)


def benchmark_totals(
    predictions: Mapping[str, Tensor], batch: Batch, classes: Sequence[str]
) -> dict[str, tuple[Tensor, Tensor | int]]:
    """Returns sums and counts of every metric, over all agents and over those of each class."""
    values = forecast_metrics(forecast_of(predictions), truth_of(batch))
    return batch_totals({**values, **by_class(values, batch["category"], classes)})
