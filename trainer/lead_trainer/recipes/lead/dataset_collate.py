"""Samples to a batch: arrays stacked to tensors, numbers to vectors, texts to lists; nothing is dropped in silence."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from lead_trainer.errors import BadData
from lead_trainer.recipes.recipe import Batch, Sample


def collate(samples: Sequence[Sample]) -> Batch:
    """Stacks samples; a key some samples lack is filled with zeros, as in LEAD.

    Raises BadData naming the key whose values cannot be stacked, with their shapes.
    """
    keys = dict.fromkeys(key for sample in samples for key in sample)
    return {key: _stacked(key, [sample.get(key) for sample in samples]) for key in keys}


def _stacked(key: str, values: list[Any]) -> Any:
    example = next((value for value in values if value is not None), None)
    if example is None:
        raise BadData(f"key {key} has no value in a whole batch")
    if isinstance(example, str):
        return [value or "" for value in values]
    filler = np.zeros_like(np.asarray(example))
    arrays = [filler if value is None else np.asarray(value) for value in values]
    if len({array.shape for array in arrays}) > 1:
        shapes = sorted({str(array.shape) for array in arrays})
        raise BadData(
            f"key {key} has shapes {', '.join(shapes)} in one batch; samples near a route's end lack a future"
        )
    return torch.from_numpy(np.stack(arrays))
