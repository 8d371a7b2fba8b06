"""A clip as the bytes of an animated GIF, which browsers, TensorBoard and W&B play."""

import io

import numpy as np
import numpy.typing as npt
from PIL import Image

FRAME_MS = 200


def as_gif(clip_THWC: npt.NDArray[np.uint8]) -> bytes:
    """Returns (T, H, W, 3) RGB pictures as a GIF that begins again at its end."""
    frames, out = [Image.fromarray(picture) for picture in clip_THWC], io.BytesIO()
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:], duration=FRAME_MS, loop=0)
    return out.getvalue()
