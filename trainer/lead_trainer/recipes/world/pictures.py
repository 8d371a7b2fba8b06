"""What people see of a training: truth above what the model made of it, and an open-loop prediction as a clip."""

import numpy as np
import torch

from lead_trainer.contract.reports import Picture
from lead_trainer.recipes.world.model import Outputs
from lead_trainer.recipes.world.pixels import shown


def training_pictures(outputs: Outputs, images: torch.Tensor, clips: int) -> dict[str, Picture]:
    """Returns `train/reconstruction` and, where there is one, `train/prediction`: the last frames of some clips."""
    found = {"train/reconstruction": above(images[:clips, -1], outputs["reconstructed"][:clips, -1])}
    if "predicted" in outputs:
        found["train/prediction"] = above(images[:clips, -1], outputs["predicted"][:clips, -1])
    return found


def validation_samples(outputs: Outputs, images: torch.Tensor, clips: int) -> Picture:
    """Returns the last frames of some clips: the truth, below it the reconstruction, then the prediction."""
    rows = images[:clips, -1], outputs["reconstructed"][:clips, -1], outputs["predicted"][:clips, -1]
    return above(*rows)


def rollout_clip(truth: torch.Tensor, predicted: torch.Tensor) -> Picture:
    """Returns a clip (S, H, 2 W, 3): true frames (S, 3, H, W) beside those predicted in open loop."""
    return np.ascontiguousarray(np.concatenate([shown(truth), shown(predicted)], axis=2))


def above(*rows: torch.Tensor) -> Picture:
    """Returns pictures (N, 3, H, W) in [-1, 1], side by side, each row below the one before: (rows H, N W, 3)."""
    return np.ascontiguousarray(np.concatenate([np.concatenate(list(shown(row)), axis=1) for row in rows], axis=0))
