"""One random change of a whole window: the same part, mirror, brightness and contrast for each of its frames."""

from collections.abc import Iterable
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.data.frame_memory import FrameMemory
from lead_trainer.data.sample_order import unit_float
from lead_trainer.recipes.world.data_keys import AugmentationKeys
from lead_trainer.recipes.world.ingest.scenes import Float32

Frame = npt.NDArray[np.uint8]  # (H, W, 3)
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

    @property
    def changes_pixels(self) -> bool:
        """Whether any pixel may change its value."""
        return (self.scale, self.flip, self.brightness, self.contrast) != (1.0, False, 1.0, 1.0)


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


def write_changed(frames: Iterable[Frame], chosen: Draw, memory: FrameMemory, places: Iterable[Frame]) -> None:
    """Writes a window's frames (H, W, 3) to `places`, contiguous, with the same done to each.

    A frame of `frames` is read before the next is taken, and not written to.
    """
    if (chosen.brightness, chosen.contrast) == (1.0, 1.0):
        for frame, place in zip(frames, places, strict=True):
            _placed(frame, chosen, memory, place)
        return
    total = 0.0
    for frame, place in zip(frames, memory.whole, strict=True):
        total += sum(cv2.sumElems(_placed(frame, chosen, memory, place)))
    mean = total / memory.whole.size
    levels = (np.arange(256, dtype=np.float64) - mean) * chosen.contrast + mean
    table = np.clip(np.rint(levels * chosen.brightness), 0, 255).astype(np.uint8)
    for frame, place in zip(memory.whole, places, strict=True):
        cv2.LUT(frame, table, dst=place)


def _placed(frame: Frame, chosen: Draw, memory: FrameMemory, place: Frame) -> Frame:
    """Writes the part of a frame, as large as the whole and mirrored or not, to `place`; returns that."""
    height, width = frame.shape[:2]
    rows, columns = max(1, round(height * chosen.scale)), max(1, round(width * chosen.scale))
    if (rows, columns) != (height, width):
        top, left = round((height - rows) * chosen.down), round((width - columns) * chosen.right)
        resized = memory.spare if chosen.flip else place
        part = frame[top : top + rows, left : left + columns]
        frame = _u8(cv2.resize(part, (width, height), dst=resized, interpolation=cv2.INTER_LINEAR))
    if chosen.flip:
        cv2.flip(frame, 1, dst=place)
    elif frame is not place:
        np.copyto(place, frame)
    return place


def steered(actions: Float32, chosen: Draw) -> Float32:
    """Returns the actions (T-1, 4) of the changed frames: a mirror negates the steering."""
    return actions * np.array([-1.0, 1.0, 1.0, 1.0], np.float32) if chosen.flip else actions


def _u8(frame: object) -> Frame:
    return np.asarray(frame, np.uint8)
