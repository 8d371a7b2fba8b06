"""Samples to a batch: agents and points are padded by zeros to the longest of the batch."""

from collections.abc import Sequence

import numpy as np

from lead_trainer.contract.samples import Batch, Sample, stacked

AGENTS = ("boxes", "box_class", "agent_valid", "futures", "future_valid")
POINTS = ("points",)


def collate(samples: Sequence[Sample]) -> Batch:
    """Returns the batch; raises BadData naming the key that cannot be stacked."""
    agents = max(len(sample["boxes"]) for sample in samples)
    points = max(len(sample["points"]) for sample in samples)
    return stacked(
        [{**sample, **_padded(sample, AGENTS, agents), **_padded(sample, POINTS, points)} for sample in samples]
    )


def _padded(sample: Sample, names: Sequence[str], length: int) -> Sample:
    """Returns the named arrays with zeros behind their rows."""
    found = {}
    for name in names:
        array = sample[name]
        if len(array) < length:
            rest = np.zeros((length - len(array), *array.shape[1:]), array.dtype)
            array = np.concatenate([array, rest])
        found[name] = array
    return found
