"""Samples to a batch: arrays stacked to tensors, numbers to vectors, texts to lists; nothing is dropped in silence."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from lead_trainer.errors import BadData
from lead_trainer.recipes.recipe import Batch, Sample


def stacked(
    samples: Sequence[Sample], *, fill_missing: bool = False, hint: str = "every sample must have the same"
) -> Batch:
    """Stacks samples of any keys; what some lack is filled with zeros where `fill_missing`, else refused.

    Raises BadData naming the key whose values cannot be stacked, with their shapes and the `hint`.
    """
    keys = dict.fromkeys(key for sample in samples for key in sample)
    return {key: _stacked(key, [sample.get(key) for sample in samples], fill_missing, hint) for key in keys}


def _stacked(key: str, values: list[Any], fill_missing: bool, hint: str) -> Any:
    example = next((value for value in values if value is not None), None)
    missing = sum(value is None for value in values)
    if example is None or (missing and not fill_missing):
        raise BadData(f"key {key} has no value in {missing} of {len(values)} samples of one batch; {hint}")
    if isinstance(example, str):
        return [value or "" for value in values]
    filler = np.zeros_like(np.asarray(example)) if missing else np.empty(0)
    arrays = [filler if value is None else np.asarray(value) for value in values]
    if len({array.shape for array in arrays}) > 1:
        shapes = sorted({str(array.shape) for array in arrays})
        raise BadData(f"key {key} has shapes {', '.join(shapes)} in one batch; {hint}")
    return torch.from_numpy(np.stack(arrays))
