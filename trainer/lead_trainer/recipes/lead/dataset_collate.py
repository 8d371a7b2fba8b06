"""LEAD's samples to a batch: a key that some samples lack is filled with zeros."""

from collections.abc import Sequence

from lead_trainer.contract.samples import Batch, Sample, stacked


def collate(samples: Sequence[Sample]) -> Batch:
    """Stacks samples; raises BadData naming the key whose values cannot be stacked, with their shapes."""
    return stacked(samples, fill_missing=True, hint="samples near a route's end lack a future")
