"""Metrics of multi-modal motion forecasting, one value an item, as the nuScenes and Argoverse 2 challenges define them.

The k of every metric are the k most probable modes (of equal ones the first); with fewer modes than k, all of them.
`totals.Totals` makes means of the values. Where two readings are in use, both are here under names of their own:

- minADE_k          the smallest ADE of the k modes (nuScenes; Argoverse 2's server)
- minADE_k_bestFDE  the ADE of the mode with the smallest FDE (as published for QCNet's validation, for example)
- MR_k              the FDE of every one of the k modes is more than 2 m (Argoverse 2: strictly more)
- MissRate_2_k      every one of the k modes is somewhere 2 m or more away (nuScenes: not strictly)
- brier_minFDE_k    the smallest FDE + (1 - p)²; `…_bestFDE` takes it of the mode with the smallest FDE
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lead_trainer.metrics.displacement import average_displacement, final_displacement, largest_displacement

MISS_METRES = 2.0
REPORTED_K = (1, 5, 6, 10)


@dataclass(frozen=True)
class Forecast:
    """A model's prediction for B agents: K futures each, and their probabilities."""

    trajectories: Tensor  # (B, K, T, 2) metres, in the agent's frame at the present step
    probabilities: Tensor  # (B, K), each row sums to 1

    @property
    def modes(self) -> int:
        """K."""
        return int(self.probabilities.shape[1])


@dataclass(frozen=True)
class _Errors:
    """The errors of the k most probable modes, (B, k)."""

    average: Tensor
    final: Tensor
    largest: Tensor
    probability: Tensor


def forecast_metrics(forecast: Forecast, truth_BT2: Tensor, ks: Sequence[int] = REPORTED_K) -> dict[str, Tensor]:
    """Returns every metric of this module for every k that the forecast has modes for, (B,) each."""
    errors = _errors(forecast, truth_BT2)
    result: dict[str, Tensor] = {}
    for k in ks:
        if k <= forecast.modes:
            result |= {f"{name}_{k}{suffix}": value for (name, suffix), value in _metrics(_first(errors, k)).items()}
    return result


def metrics_at(forecast: Forecast, truth_BT2: Tensor, k: int) -> dict[str, Tensor]:
    """Returns the metrics of the k most probable modes under their names for k, (B,) each; with fewer modes, of all."""
    errors = _first(_errors(forecast, truth_BT2), k)
    return {f"{name}_{k}{suffix}": value for (name, suffix), value in _metrics(errors).items()}


def most_probable_first(probabilities_BK: Tensor) -> Tensor:
    """Returns the modes from the most to the least probable, (B, K); equal ones keep their order."""
    return torch.argsort(probabilities_BK, dim=-1, descending=True, stable=True)


def _errors(forecast: Forecast, truth_BT2: Tensor) -> _Errors:
    predicted, truth = forecast.trajectories.double(), truth_BT2.double()
    order_BK = most_probable_first(forecast.probabilities)
    measures = (average_displacement, final_displacement, largest_displacement)
    average, final, largest = (measure(predicted, truth).gather(1, order_BK) for measure in measures)
    return _Errors(average, final, largest, forecast.probabilities.double().gather(1, order_BK))


def _first(errors: _Errors, k: int) -> _Errors:
    return _Errors(errors.average[:, :k], errors.final[:, :k], errors.largest[:, :k], errors.probability[:, :k])


def _metrics(errors: _Errors) -> dict[tuple[str, str], Tensor]:
    best_B1 = errors.final.nan_to_num(nan=torch.inf).argmin(dim=1, keepdim=True)
    brier = errors.final + (1 - errors.probability) ** 2
    final, largest = errors.final.amin(dim=1), errors.largest.amin(dim=1)
    unknown = final.isnan()
    return {
        ("minADE", ""): errors.average.amin(dim=1),
        ("minADE", "_bestFDE"): errors.average.gather(1, best_B1).squeeze(1),
        ("minFDE", ""): final,
        ("MR", ""): (final > MISS_METRES).double().masked_fill(unknown, torch.nan),
        ("MissRate_2", ""): (largest >= MISS_METRES).double().masked_fill(unknown, torch.nan),
        ("brier_minFDE", ""): brier.amin(dim=1),
        ("brier_minFDE", "_bestFDE"): brier.gather(1, best_B1).squeeze(1),
    }
