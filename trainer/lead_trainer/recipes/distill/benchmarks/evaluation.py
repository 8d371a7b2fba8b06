"""A benchmark's metrics of one batch, for the model and for the baselines alike."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from lead_trainer.contract.samples import Batch
from lead_trainer.metrics.forecasting import REPORTED_K, Forecast, forecast_metrics
from lead_trainer.metrics.totals import batch_totals, by_class

CLASS_METRICS = ("minADE", "minFDE", "MR", "MissRate_2")


def forecast_of(predictions: Mapping[str, Tensor]) -> Forecast:
    """Returns the student's modes with their probabilities."""
    return Forecast(predictions["xy"].float(), predictions["logits"].float().softmax(dim=1))


def truth_of(batch: Batch) -> Tensor:
    """Returns the true positions, (B, T, 2) float64, NaN where there is none."""
    return torch.where(batch["target_valid"][..., None], batch["target_xy"].double(), torch.nan)


def benchmark_totals(
    predictions: Mapping[str, Tensor], batch: Batch, classes: Sequence[str]
) -> dict[str, tuple[Tensor, Tensor | int]]:
    """Returns sums and counts of every metric over all agents, and of CLASS_METRICS at the largest k by class."""
    forecast = forecast_of(predictions)
    values = forecast_metrics(forecast, truth_of(batch))
    k = max(k for k in REPORTED_K if k <= forecast.modes)
    chosen = {tag: values[tag] for tag in (f"{name}_{k}" for name in CLASS_METRICS)}
    return batch_totals({**values, **by_class(chosen, batch["category"], classes)})
