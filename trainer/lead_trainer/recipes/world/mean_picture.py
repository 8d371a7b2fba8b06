"""The mean picture of the training windows, which a model that has learnt nothing shows: a baseline.

A fact of the data, of at most SIDE pixels a side: rank 0 computes it once, checkpoints keep it.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from lead_trainer.contract.samples import Samples
from lead_trainer.contract.step import Facts

FACT = "mean_picture"
SIDE = 64  # pixels, at most
MOST_WINDOWS = 256  # that are averaged, at equal distances


def mean_picture_facts(windows: Samples) -> Facts:
    """Returns the mean over frames of the windows' `images` (T, H, W, 3), uint8, as (3, H, W); none without windows."""
    count = len(windows)
    if not count:
        return {}
    numbers = np.unique(np.linspace(0, count - 1, min(count, MOST_WINDOWS)).round().astype(np.int64))
    means = [_small(np.asarray(windows.load(int(number), 0)["images"])) for number in numbers]
    pixels = torch.stack(means).mean(0).round().int()
    return {FACT: pixels.tolist()}


def mean_picture_of(facts: Facts, like: torch.Tensor) -> torch.Tensor | None:
    """Returns the mean picture (3, H, W) in [0, 1], as large as pictures `like` (..., 3, H, W); None without facts."""
    if FACT not in facts:
        return None
    picture = torch.tensor(facts[FACT], dtype=torch.float32, device=like.device)[None] / 255.0
    return functional.interpolate(picture, like.shape[-2:], mode="bilinear", align_corners=False)[0].to(like.dtype)


def _small(frames: npt.NDArray[np.uint8]) -> torch.Tensor:
    channels = np.ascontiguousarray(np.moveaxis(frames, -1, 1), np.float32)
    mean = torch.from_numpy(channels).mean(0, keepdim=True)
    height, width = (min(side, SIDE) for side in mean.shape[-2:])
    return functional.interpolate(mean, (height, width), mode="area")[0]
