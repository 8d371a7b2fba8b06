"""Training pictures as files, for browsing a folder: one PNG per picture, named by its step.

Used on rank 0 by a run on this machine, beside the event file; a pod's pictures are in its event file in the store.
"""

from collections.abc import Mapping
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import structlog
import torch

from lead_trainer.report.gif import as_gif

CLIP_AXES = 4  # time, height, width, channels

log = structlog.get_logger(__name__)


class PictureFiles:
    """Writes pictures and nothing else."""

    def __init__(self, folder: Path) -> None:
        """`folder` is made with the first picture."""
        self._folder = folder

    def picture(self, tag: str, picture_HWC: npt.NDArray[np.uint8], step: int) -> None:
        """Writes `<tag>_<step>.png`, by a partial file that is renamed; a full disk costs the picture, not the run."""
        self.write(tag, picture_HWC, step)

    def clip(self, tag: str, clip_THWC: npt.NDArray[np.uint8], step: int) -> None:
        """Writes `<tag>_<step>.gif` in the same way."""
        self.write(tag, clip_THWC, step)

    def write(self, tag: str, picture: npt.NDArray[np.uint8], step: int) -> Path | None:
        """Writes a picture (H, W, 3), or a clip (T, H, W, 3); returns its file, None where that cannot be written."""
        is_clip = picture.ndim == CLIP_AXES
        path = self._folder / f"{tag.replace('/', '_')}_{step:07d}.{'gif' if is_clip else 'png'}"
        part = path.with_name(f".{path.name}.part")
        try:
            data = as_gif(picture) if is_clip else as_png(picture)
            self._folder.mkdir(parents=True, exist_ok=True)
            part.write_bytes(data)
            part.replace(path)
        except (OSError, ValueError, TypeError, cv2.error) as error:
            log.warning("a picture is not written", file=str(path), error=str(error))
            return None
        return path

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Scalars are in the event file."""

    def histogram(self, tag: str, values: torch.Tensor, step: int) -> None:
        """Histograms are in the event file."""

    def upload(self) -> None:
        """Files are written where they are read."""

    def close(self) -> None:
        """Nothing is left: every picture is written at once."""


def as_png(picture_HWC: npt.NDArray[np.uint8]) -> bytes:
    """Returns an RGB picture as a PNG; raises ValueError for an array that is none."""
    done, data = cv2.imencode(".png", cv2.cvtColor(picture_HWC, cv2.COLOR_RGB2BGR))
    if not done:
        raise ValueError(f"an array of {picture_HWC.shape} {picture_HWC.dtype} cannot be written as PNG")
    return data.tobytes()
