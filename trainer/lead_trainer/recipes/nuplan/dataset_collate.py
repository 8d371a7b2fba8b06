"""Samples to a batch: agents and points are padded by zeros to the longest of the batch."""

from collections.abc import Sequence

import numpy as np

from lead_trainer.contract.samples import Batch, Sample, stacked

PADDED = ("boxes", "box_class", "agent_valid", "futures", "future_valid", "points")  # agents, and points


def collate(samples: Sequence[Sample]) -> Batch:
    """Returns the batch of samples, or of some of their keys; raises BadData naming the key that cannot be stacked."""
    return stacked([{**sample, **padding} for sample, padding in zip(samples, _padded(samples), strict=True)])


def _padded(samples: Sequence[Sample]) -> list[Sample]:
    """Returns the padded arrays of each sample."""
    found: list[Sample] = [{} for _ in samples]
    for name in PADDED:
        arrays = [sample[name] for sample in samples if name in sample]
        longest = max(map(len, arrays), default=0)
        for padding, array in zip(found, arrays, strict=False):
            if len(array) < longest:
                rest = np.zeros((longest - len(array), *array.shape[1:]), array.dtype)
                padding[name] = np.concatenate([array, rest])
    return found
