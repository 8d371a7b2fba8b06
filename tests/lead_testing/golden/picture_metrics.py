"""PSNR and SSIM by scikit-image's definitions: Gaussian weights of sigma 1.5, borders left out."""

import numpy as np
import numpy.typing as npt
from scipy.ndimage import gaussian_filter

BYTES = 255.0  # the greatest value of a pixel
SIGMA, RADIUS = 1.5, 5  # of SSIM's window of 11 pixels

Doubles = npt.NDArray[np.float64]


def psnr(one: Doubles, other: Doubles) -> float:
    """Returns the peak signal-to-noise ratio in dB of pictures in 0 … 255; infinite where they are equal."""
    with np.errstate(divide="ignore"):
        return float(10.0 * np.log10(BYTES**2 / np.mean((one - other) ** 2)))


def ssim(one: Doubles, other: Doubles, most: float = BYTES) -> float:
    """Returns the mean structural similarity of two pictures (H, W, 3) in 0 … `most`, over channels and pixels."""
    return float(np.mean([_ssim_of_channel(one[..., each], other[..., each], most) for each in range(3)]))


def _ssim_of_channel(one: Doubles, other: Doubles, most: float) -> float:
    def local(values: Doubles) -> Doubles:
        return np.asarray(gaussian_filter(values, SIGMA, radius=RADIUS))

    steady, swing = (0.01 * most) ** 2, (0.03 * most) ** 2
    mean, other_mean = local(one), local(other)
    spread = local(one * one) - mean * mean
    other_spread = local(other * other) - other_mean * other_mean
    shared = local(one * other) - mean * other_mean
    above = (2 * mean * other_mean + steady) * (2 * shared + swing)
    below = (mean**2 + other_mean**2 + steady) * (spread + other_spread + swing)
    inner = slice(RADIUS, -RADIUS)
    return float((above / below)[inner, inner].mean())
