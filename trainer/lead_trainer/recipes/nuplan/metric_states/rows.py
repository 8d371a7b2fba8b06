"""Rows of values that ranks gather: in one order whatever rank they come from, so nothing computed of them differs."""

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


def sample_numbers(logs: Sequence[str], tokens: Sequence[str]) -> torch.Tensor:
    """Returns a number (B,) int64 for each sample by which rows of any rank find it again."""
    digests = [hashlib.sha256(f"{log}/{token}".encode()).digest() for log, token in zip(logs, tokens, strict=True)]
    return torch.tensor([int.from_bytes(digest[:8], "big", signed=True) for digest in digests], dtype=torch.int64)


def gathered_rows(samples: Sequence[torch.Tensor], rows: Sequence[torch.Tensor], width: int) -> tuple[Int64, Float64]:
    """Returns all samples (N,) and rows (N, width), sorted by sample and then by content."""
    numbers = whole_state(samples, torch.empty(0, dtype=torch.int64)).numpy()
    values = whole_state(rows, torch.empty(0, width, dtype=torch.float64)).numpy()
    order = np.lexsort((*values.T[::-1], numbers))
    return numbers[order], values[order]


def whole_state(state: torch.Tensor | Sequence[torch.Tensor], empty: torch.Tensor) -> torch.Tensor:
    """Returns a list state as one tensor, `empty` without an update; a merge of ranks may have made it one already."""
    return state if isinstance(state, torch.Tensor) else torch.cat([*state, empty])


def exact_mean(values: Float64) -> float:
    """Returns the mean of a sum that is rounded once, so that no order of its terms matters; NaN of none."""
    return math.fsum(values.tolist()) / len(values) if len(values) else math.nan
