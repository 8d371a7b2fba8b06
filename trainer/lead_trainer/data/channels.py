"""Pictures from rows of pixels to one plane a channel, as networks read them; called by the recipes' samples."""

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt


def channels_first(picture_HWC: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns the same values as a contiguous (C, H, W) array; several times as fast as copying a transposed view."""
    height, width, channels = picture_HWC.shape
    planes = np.empty((channels, height, width), picture_HWC.dtype)
    for channel in range(channels):
        cv2.extractChannel(picture_HWC, channel, planes[channel])
    return planes
