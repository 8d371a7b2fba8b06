"""One random change of a whole window: the same part, mirror, brightness and contrast for each of its frames."""

from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.data.sample_order import unit_float
from lead_trainer.recipes.world.data_keys import AugmentationKeys
from lead_trainer.recipes.world.ingest.scenes import Float32

Frames = npt.NDArray[np.uint8]  # (T, H, W, 3)
STREAM = 11  # of the random numbers


@dataclass(frozen=True)
class Draw:
    """What is done to a window."""

    scale: float  # of the part's sides; 1: the whole picture
    down: float  # place of the part, 0: at the top, 1: at the bottom
    right: float
    flip: bool
    brightness: float  # factors
    contrast: float


def draw(keys: AugmentationKeys, *seeds: int) -> Draw:
    """Returns what `seeds` draw, and nothing else decides."""
    scale, down, right, flip, light, contrast = (unit_float(*seeds, STREAM, number) for number in range(6))
    low, high = keys.crop_scale
    return Draw(
        scale=low + (high - low) * scale,
        down=down,
        right=right,
        flip=flip < keys.flip,
        brightness=1.0 + keys.brightness * (2.0 * light - 1.0),
        contrast=1.0 + keys.contrast * (2.0 * contrast - 1.0),
    )


def augmented(frames: Frames, actions: Float32, chosen: Draw) -> tuple[Frames, Float32]:
    """Returns a changed copy of a window's frames (T, H, W, 3) and actions (T-1, 4): steering negated by a mirror."""
    height, width = frames.shape[1:3]
    rows, columns = max(1, round(height * chosen.scale)), max(1, round(width * chosen.scale))
    if (rows, columns) != (height, width):
        top, left = round((height - rows) * chosen.down), round((width - columns) * chosen.right)
        part = frames[:, top : top + rows, left : left + columns]
        frames = np.stack([cv2.resize(frame, (width, height), interpolation=cv2.INTER_LINEAR) for frame in part])
    if chosen.flip:
        frames = frames[:, :, ::-1]
        actions = actions * np.array([-1.0, 1.0, 1.0, 1.0], np.float32)
    if (chosen.brightness, chosen.contrast) != (1.0, 1.0):
        levels = np.arange(256, dtype=np.float64)
        mean = float(frames.mean())
        changed = ((levels - mean) * chosen.contrast + mean) * chosen.brightness
        frames = np.clip(np.rint(changed), 0, 255).astype(np.uint8)[frames]
    return frames, actions
