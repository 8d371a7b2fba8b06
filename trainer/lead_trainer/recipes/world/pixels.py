"""The two ranges that pictures have: [-1, 1] in the model and its losses, [0, 1] in metrics; files hold 0 to 255."""

import numpy as np
import torch

from lead_trainer.contract.reports import Picture


def signed(pixels: torch.Tensor) -> torch.Tensor:
    """Returns uint8 pictures (..., H, W, 3) as float32 (..., 3, H, W) in [-1, 1], contiguous."""
    return pixels.movedim(-1, -3).contiguous().float().div_(127.5).sub_(1.0)


def unit(pictures: torch.Tensor) -> torch.Tensor:
    """Returns pictures in [-1, 1] as float32 in [0, 1]."""
    return pictures.float().add(1.0).mul_(0.5).clamp_(0.0, 1.0)


def shown(pictures: torch.Tensor) -> Picture:
    """Returns pictures (..., 3, H, W) in [-1, 1] as uint8 (..., H, W, 3)."""
    found = unit(pictures.detach()).mul_(255.0).round_().to(torch.uint8).movedim(-3, -1).cpu().numpy()
    return np.ascontiguousarray(found)
