"""Metrics of torchmetrics whose states are merged over ranks give what one process with every sample gives."""

from collections.abc import Callable

import pytest
import torch
import torchmetrics
from torchmetrics import Metric

from lead_trainer.engine.validation.metric_states import merged_metric, packed, refuse_no_merge, unpacked

SHARES = (slice(0, 5), slice(5, 6), slice(6, 6), slice(6, 17))  # of four ranks, one of which has no sample


@pytest.mark.parametrize(
    "made",
    [
        torchmetrics.PearsonCorrCoef,  # states without a reduction, which compute aggregates
        torchmetrics.SpearmanCorrCoef,  # lists of samples
        torchmetrics.MeanSquaredError,  # sums
        torchmetrics.R2Score,
    ],
)
def test_four_ranks_measure_what_one_does(made: Callable[[], Metric]) -> None:
    generator = torch.Generator().manual_seed(3)
    truth = torch.randn(17, generator=generator)
    guess = truth + 0.3 * torch.randn(17, generator=generator)
    alone = made()
    alone.update(guess, truth)
    refuse_no_merge("m", made())
    states = []
    for share in SHARES:
        rank = made()
        if len(truth[share]):
            rank.update(guess[share], truth[share])
        states.append(unpacked(packed(rank), rank))
    torch.testing.assert_close(merged_metric(made(), states).compute(), alone.compute(), rtol=1e-5, atol=1e-6)
