"""What people see of a validation: from above, the true way of some samples beside the modes that are predicted.

Ahead is up and left is left, all samples at one scale. The truth is green, modes are the brighter the likelier.
"""

import cv2
import numpy as np
import numpy.typing as npt
import torch

from lead_trainer.contract.reports import Picture
from lead_trainer.contract.samples import Batch

SHOWN_SAMPLES, PANEL = 4, 256  # panels side by side, pixels a side
MARGIN = 16  # pixels
TRUTH, MODE, EGO = (90, 220, 90), (255, 150, 70), (255, 255, 255)


def ways_from_above(predictions: dict[str, torch.Tensor], batch: Batch) -> Picture:
    """Returns the picture (PANEL, N PANEL, 3) of the first samples; `xy` (B, K, T, 2) in metres, x ahead, y left."""
    count = min(SHOWN_SAMPLES, len(batch["target_xy"]))
    modes = predictions["xy"][:count].detach().double().cpu().numpy()
    chances = predictions["logits"][:count].detach().double().softmax(1).cpu().numpy()
    truth = batch["target_xy"][:count].double().cpu().numpy()
    valid = batch["target_valid"][:count].cpu().numpy().astype(bool)
    farthest = max(1.0, *(float(np.abs(truth[row][valid[row]]).max(initial=0.0)) for row in range(count)))
    panels = []
    for row in range(count):
        panel = np.zeros((PANEL, PANEL, 3), np.uint8)
        for mode in np.argsort(chances[row]):
            share = float(chances[row, mode] / chances[row].max())
            _line(panel, modes[row, mode], farthest, tuple(round(one * (0.3 + 0.7 * share)) for one in MODE))
        _line(panel, truth[row][valid[row]], farthest, TRUTH)
        cv2.circle(panel, _pixels(np.zeros((1, 2)), farthest)[0].tolist(), 3, EGO, -1, cv2.LINE_AA)
        panels.append(panel)
    return np.ascontiguousarray(np.concatenate(panels, 1))


def _line(panel: Picture, way: npt.NDArray[np.float64], farthest: float, colour: tuple[int, ...]) -> None:
    places = _pixels(np.concatenate([np.zeros((1, 2)), way]), farthest)
    cv2.polylines(panel, [places], False, colour, 2, cv2.LINE_AA)


def _pixels(places: npt.NDArray[np.float64], farthest: float) -> npt.NDArray[np.int32]:
    """Returns columns and rows; the ego is in the middle, `farthest` metres are at the margin."""
    scale = (PANEL / 2 - MARGIN) / farthest
    found = PANEL / 2 - np.nan_to_num(places)[..., ::-1] * scale
    return np.round(np.clip(found, -PANEL, 2 * PANEL)).astype(np.int32)
