"""What is known of the training set as a whole: colours of its pictures, and how much of the grid each layer fills."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lead_trainer.contract.samples import Samples
from lead_trainer.recipes.nuplan.config import NuplanConfig
from lead_trainer.recipes.nuplan.model import MEAN_FACT, STD_FACT

LAYER_SHARE_FACT = "layer_share"  # (5,) of cells, by LAYERS; absent where no sample has a map
SAMPLES = 64  # read, evenly over the split


def data_facts(config: NuplanConfig, samples: Samples) -> Mapping[str, Any]:
    """Returns the facts of up to SAMPLES samples, without augmentation; the same for every rank."""
    numbers = np.unique(np.linspace(0, len(samples) - 1, min(SAMPLES, len(samples))).astype(int))
    sums, squares, pixels = np.zeros(3), np.zeros(3), 0
    filled, maps = np.zeros(5), 0
    for number in numbers.tolist():
        sample = samples.load(number, 0)
        values = np.ascontiguousarray(np.moveaxis(np.asarray(sample["images"]), -1, 1), np.float64) / 255.0
        sums, squares = sums + values.sum((0, 2, 3)), squares + np.square(values).sum((0, 2, 3))
        pixels += values.size // 3
        if sample["labelled"][1]:
            filled, maps = filled + np.asarray(sample["layers"], np.float64).mean((1, 2)), maps + 1
    mean = sums / pixels
    facts: dict[str, Any] = {}
    if config.model.normalise == "fitted":
        spread = np.sqrt(np.maximum(squares / pixels - mean**2, 1e-6))
        facts = {MEAN_FACT: mean.tolist(), STD_FACT: spread.tolist()}
    return {**facts, LAYER_SHARE_FACT: (filled / maps).tolist()} if maps else facts
