"""LEAD's samples to a batch: a key that some samples lack is filled with zeros."""

from collections.abc import Sequence

from lead_trainer.data.stacked_samples import stacked
from lead_trainer.recipes.recipe import Batch, Sample


def collate(samples: Sequence[Sample]) -> Batch:
    """Stacks samples; raises BadData naming the key whose values cannot be stacked, with their shapes."""
    return stacked(samples, fill_missing=True, hint="samples near a route's end lack a future")
