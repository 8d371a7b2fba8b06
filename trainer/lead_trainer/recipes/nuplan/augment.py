"""Changes of a training sample, one draw each: colours, points left out or moved, and mirroring left to right."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.contract.samples import Sample
from lead_trainer.data.frame_memory import FrameMemory
from lead_trainer.recipes.nuplan.data_keys import AugmentationKeys
from lead_trainer.recipes.nuplan.sensor_bundle import calibration_hash

_STREAM = 17  # of the numbers drawn for a sample
_GREY = np.array([0.299, 0.587, 0.114])  # shares of red, green and blue in a pixel's brightness

Picture = npt.NDArray[np.uint8]  # (H, W, 3) RGB
Points = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Draw:
    """What is done to one sample."""

    brightness: float = 1.0
    contrast: float = 1.0
    saturation: float = 1.0
    flip: bool = False

    @property
    def changes_colours(self) -> bool:
        """Whether any pixel changes its value."""
        return (self.brightness, self.contrast, self.saturation) != (1.0, 1.0, 1.0)


def draw(keys: AugmentationKeys, random: np.random.Generator) -> Draw:
    """Draws the changes of one sample."""
    brightness, contrast, saturation, turn = random.uniform(size=4)
    return Draw(
        brightness=float(1 + keys.brightness * (2 * brightness - 1)),
        contrast=float(1 + keys.contrast * (2 * contrast - 1)),
        saturation=float(1 + keys.saturation * (2 * saturation - 1)),
        flip=bool(turn < keys.flip),
    )


def random_of(seed: int, epoch: int, index: int) -> np.random.Generator:
    """Returns the generator of one sample in one epoch."""
    return np.random.default_rng([seed, epoch, index, _STREAM])


def write_coloured(pictures: Iterable[Picture], chosen: Draw, memory: FrameMemory, places: Iterable[Picture]) -> None:
    """Writes pictures to `places`, contiguous, with other brightness, contrast and saturation, the same for all.

    All three are one affine map of a pixel's three values, rounded and kept in 0 … 255 once. The pictures are read one
    after the other, and not written to.
    """
    means = []
    for picture, place in zip(pictures, memory.whole, strict=True):
        means.append(cv2.mean(picture)[:3])
        np.copyto(place, picture)
    middle = float(np.mean(means)) * chosen.brightness
    mix = chosen.saturation * np.eye(3) + (1.0 - chosen.saturation) * np.outer(np.ones(3), _GREY)
    matrix = np.empty((3, 4))
    matrix[:, :3] = chosen.contrast * chosen.brightness * mix
    matrix[:, 3] = (1.0 - chosen.contrast) * middle
    for picture, place in zip(memory.whole, places, strict=True):
        cv2.transform(picture, matrix, place)


def thinned(points: Points, keys: AugmentationKeys, random: np.random.Generator) -> Points:
    """Returns the points without a share of them, the others moved by noise; unchanged where both keys are 0."""
    if keys.point_dropout:
        points = points[random.uniform(size=len(points)) >= keys.point_dropout]
    if keys.point_noise_m:
        points = points.copy()
        points[:, :3] += random.normal(0.0, keys.point_noise_m, (len(points), 3)).astype(np.float32)
    return points


def mirrored(sample: Mapping[str, Any]) -> Sample:
    """Returns a sample seen in a mirror along the vehicle's x axis: left becomes right in everything.

    A mirrored picture is that of a camera which is mounted, and looks, as the mirror shows it. Twice gives the sample
    itself, bit for bit.
    """
    height, width = sample["images"].shape[1:3]
    intrinsics = sample["intrinsics"].copy()
    intrinsics[:, 0, 2] = width - 1 - intrinsics[:, 0, 2]
    mounts = sample["camera_to_vehicle"] * _signs(left=1, right=0)
    changed = {
        "images": sample["images"].mirrored(),
        "intrinsics": intrinsics,
        "camera_to_vehicle": mounts,
        "picture_to_sweep": sample["picture_to_sweep"] * _signs(left=1, right=1),
        "calibration": calibration_hash(intrinsics, mounts, (height, width)),
        "points": _negated(sample["points"], 1),
        "boxes": _negated(sample["boxes"], 1, 4, 6),
        "futures": _negated(sample["futures"], 1, 2),
        "ego_future": _negated(sample["ego_future"], 1, 2),
        "ego_state": _negated(sample["ego_state"], 1, 3),
        **{name: np.ascontiguousarray(sample[name][..., ::-1]) for name in ("layers", "occupied", "known")},
    }
    return {**sample, **changed}


def _signs(left: int, right: int) -> npt.NDArray[np.float32]:
    """Returns the signs (4, 4) of a matrix whose target is mirrored along axis `left` and its source along `right`."""
    target, source = np.ones(4, np.float32), np.ones(4, np.float32)
    target[left], source[right] = -1, -1
    return np.outer(target, source).astype(np.float32)


def _negated(values: npt.NDArray[np.float32], *columns: int) -> npt.NDArray[np.float32]:
    changed = values.copy()
    changed[..., list(columns)] *= -1
    return changed
