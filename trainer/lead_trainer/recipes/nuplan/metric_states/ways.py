"""How far predicted ways are from the true ones, as rows, one an agent.

An agent without a true pose is not counted. ADE and FDE are those of the best mode over the poses that are known, FDE
at the last one. Miss: no mode ends within 2 m (exactly 2 m is none). A mode is right if it ends within 2 m; recall is
the share of agents with a right mode, precision the share of right ones among modes of a probability of 1 / K or more.
"""

import torch
from torchmetrics import Metric

from lead_trainer.metrics.displacement import average_displacement, final_displacement, largest_displacement
from lead_trainer.metrics.forecasting import MISS_METRES
from lead_trainer.recipes.nuplan.metric_states.rows import exact_mean, whole_state

COLUMNS = ("ADE", "FDE", "miss", "right", "likely", "found", "whole", "leaves")


def way_rows(places: torch.Tensor, chances: torch.Tensor, truth: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """Returns a row of COLUMNS (N, 8) for agents with a true pose.

    Places (A, K, T, 2), their chances (A, K), truth (A, T, 2) and valid (A, T), metres.
    """
    known = valid.any(1)
    places, chances, truth, valid = (value[known] for value in (places.double(), chances.double(), truth, valid))
    true = truth.double().masked_fill(~valid[..., None], torch.nan)
    final = final_displacement(places, true)
    ends_right, likely = final <= MISS_METRES, chances >= 1 / chances.shape[1]
    return torch.stack(
        [
            average_displacement(places, true).amin(1),
            final.amin(1),
            (final.amin(1) > MISS_METRES).double(),
            (ends_right & likely).sum(1).double(),
            likely.sum(1).double(),
            ends_right.any(1).double(),
            valid.all(1).double(),
            (largest_displacement(places, true).amin(1) >= MISS_METRES).double(),
        ],
        dim=1,
    )


class WayErrors(Metric):
    """ADE, FDE, miss rate, mode recall and precision; `suffix` distinguishes where the agents come from."""

    full_state_update = False
    rows: list[torch.Tensor]

    def __init__(self, suffix: str = "") -> None:
        super().__init__()
        self.suffix = suffix
        self.add_state("rows", default=[], dist_reduce_fx="cat")

    def update(self, rows: torch.Tensor) -> None:
        """Adds rows (N, 8) of COLUMNS."""
        self.rows.append(rows.double().cpu())

    def compute(self) -> dict[str, float]:
        """Returns the metrics by tag; nothing without an agent. `miss_rate_max` is nuScenes', of whole ways alone."""
        rows = whole_state(self.rows, torch.empty(0, len(COLUMNS), dtype=torch.float64))
        if not len(rows):
            return {}
        columns = dict(zip(COLUMNS, rows.numpy().T, strict=True))
        likely, whole = columns["likely"].sum(), columns["whole"] > 0
        found = {
            "ADE": exact_mean(columns["ADE"]),
            "FDE": exact_mean(columns["FDE"]),
            "miss_rate": exact_mean(columns["miss"]),
            "miss_rate_max": exact_mean(columns["leaves"][whole]),
            "mode_recall": exact_mean(columns["found"]),
            "mode_precision": float(columns["right"].sum() / likely) if likely else float("nan"),
        }
        return {f"{name}{self.suffix}": value for name, value in found.items()}
