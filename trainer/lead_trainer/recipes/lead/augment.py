"""Colour augmentation of one picture: LEAD's six operations, each with the same probability, in random order.

Every number comes from the sample's own stream, so a picture is the same for any thread, rank and restart. Operations
and ranges are LEAD's (imgaug in its `image_augmenter`); the random numbers are not imgaug's.
"""

from collections.abc import Callable
from functools import lru_cache

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.data.jpeg_picture import JpegPicture

Picture = npt.NDArray[np.uint8]
Generator = np.random.Generator

PER_CHANNEL = 0.5
MAX_BLUR_SIGMA = 1.0
MAX_NOISE = 0.05 * 255
DROPOUT = (0.01, 0.1)
GAIN = (1 / 1.2, 1.2)
ELASTIC_ALPHA = (0.5, 1.5)
ELASTIC_SIGMA = 0.25
MIDDLE = 127.0


def augmented(picture: Picture | JpegPicture, stream: int, probability: float) -> Picture | JpegPicture:
    """Returns an (H, W, 3) picture changed by the operations that stream `stream` chooses, itself where it is none."""
    random = np.random.Generator(np.random.Philox(key=stream))
    order = random.permutation(len(OPERATIONS))
    chosen = random.random(len(OPERATIONS)) < probability
    for number in order:
        if chosen[number]:
            picture = OPERATIONS[number](np.asarray(picture), random)
    return picture


def blur(picture: Picture, random: Generator) -> Picture:
    """Blurs by a Gaussian of random width."""
    sigma = random.uniform(0.0, MAX_BLUR_SIGMA)
    return np.asarray(cv2.GaussianBlur(picture, (5, 5), sigma), np.uint8) if sigma > 1e-3 else picture


def noise(picture: Picture, random: Generator) -> Picture:
    """Adds Gaussian noise, the same for all channels or one for each."""
    scale, shape = random.uniform(0.0, MAX_NOISE), _shape(picture, random)
    size = int(np.prod(shape))
    table = _normal_numbers(2 * size)
    start = int(random.integers(size))
    values = table[start : start + size].reshape(shape) * np.float32(scale)
    added = values if shape == picture.shape else cv2.merge([values] * picture.shape[2])
    return np.asarray(cv2.add(picture, added, dtype=cv2.CV_8U), np.uint8)


def dropout(picture: Picture, random: Generator) -> Picture:
    """Blackens single pixels, or single channels of pixels."""
    share, shape = random.uniform(*DROPOUT), _shape(picture, random)
    return np.where(random.random(shape, np.float32) < share, np.uint8(0), picture)


def brightness(picture: Picture, random: Generator) -> Picture:
    """Multiplies by a random factor."""
    return _by_table(picture, lambda levels, factor: levels * factor, random)


def contrast(picture: Picture, random: Generator) -> Picture:
    """Stretches or squeezes around middle grey."""
    return _by_table(picture, lambda levels, factor: MIDDLE + (levels - MIDDLE) * factor, random)


def elastic(picture: Picture, random: Generator) -> Picture:
    """Moves every pixel a little, neighbours slightly alike."""
    height, width = picture.shape[:2]
    alpha = np.float32(random.uniform(*ELASTIC_ALPHA))
    moves = random.random((2, height, width), np.float32) * 2 - 1
    shift = [cv2.GaussianBlur(move, (3, 3), ELASTIC_SIGMA) * alpha for move in moves]
    rows, columns = _pixel_grid(height, width)
    return np.asarray(
        cv2.remap(picture, columns + shift[0], rows + shift[1], cv2.INTER_CUBIC, borderMode=cv2.BORDER_CONSTANT),
        np.uint8,
    )


OPERATIONS: tuple[Callable[[Picture, Generator], Picture], ...] = (blur, noise, dropout, brightness, contrast, elastic)


@lru_cache(maxsize=4)
def _normal_numbers(count: int) -> npt.NDArray[np.float32]:
    """Returns a fixed table of normal numbers: drawing new ones costs more than decoding the picture."""
    return np.random.Generator(np.random.Philox(key=count)).standard_normal(count, np.float32)


@lru_cache(maxsize=4)
def _pixel_grid(height: int, width: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    rows, columns = np.mgrid[:height, :width].astype(np.float32)
    return rows, columns


def _shape(picture: Picture, random: Generator) -> tuple[int, int, int]:
    """Returns the shape of random numbers: one a channel, or one for all channels."""
    height, width, channels = picture.shape
    return height, width, channels if random.random() < PER_CHANNEL else 1


def _by_table(
    picture: Picture, change: Callable[[npt.NDArray[np.float64], float], npt.NDArray[np.float64]], random: Generator
) -> Picture:
    levels = np.arange(256, dtype=np.float64)
    count = picture.shape[2] if random.random() < PER_CHANNEL else 1
    tables = [_rounded(change(levels, random.uniform(*GAIN))) for _ in range(count)]
    table = np.stack(tables * (picture.shape[2] // count), axis=-1)[None]
    return np.asarray(cv2.LUT(picture, table.reshape(1, 256, -1)), np.uint8)


def _rounded(values: npt.NDArray[np.floating]) -> Picture:
    return np.asarray(np.clip(np.rint(values), 0, 255), np.uint8)
