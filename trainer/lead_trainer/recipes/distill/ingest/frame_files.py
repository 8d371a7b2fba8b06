"""The files of `extracted_frames/`: `{split}/sample_XXXXX.npz`, four cameras and four pictures of each.

Cameras come in the order of `config.CAMERAS`, pictures from t0 - 0.3 s to t0 at 10 Hz.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lead_trainer.recipes.distill.config import CAMERAS, FRAMES_PER_CAMERA
from lead_trainer.recipes.distill.ingest.npz import Array, read_npz

FRAME_STEP_US = 100_000
_SCHEMA = {
    "frames": ("u1", (len(CAMERAS), FRAMES_PER_CAMERA, None, None, 3)),
    "clip_id": ("U", ()),
    "t0_us": ("i8", ()),
    "timestamps": ("i8", (len(CAMERAS), FRAMES_PER_CAMERA)),
}
_INDEX_SCHEMA = {"samples": ("i8", (None,)), "clip_ids": ("U", (None,)), "t0_us": ("i8", (None,))}
_NAME = re.compile(r"^sample_(\d{5,})\.npz$")


@dataclass(frozen=True, order=True)
class Clip:
    """One moment of one clip: what a sample is about."""

    clip_id: str
    t0_us: int


@dataclass(frozen=True)
class Frames:
    """The pictures of one sample, RGB (4, 4, H, W, 3) uint8, and when each was taken, (4, 4) int64 µs."""

    clip: Clip
    pictures: npt.NDArray[np.uint8]
    timestamps: npt.NDArray[np.int64]

    def arrays(self) -> dict[str, Array]:
        """Returns what the file holds."""
        return {
            "frames": self.pictures,
            "clip_id": np.array(self.clip.clip_id),
            "t0_us": np.array(self.clip.t0_us, np.int64),
            "timestamps": self.timestamps,
        }


def sample_name(number: int) -> str:
    """Returns the file name of a sample."""
    return f"sample_{number:05d}.npz"


def sample_number(name: str) -> int | None:
    """Returns the sample a file name stands for, None where it is no sample's."""
    match = _NAME.match(name)
    return int(match.group(1)) if match else None


def index_name(split: str) -> str:
    """Returns the name of the index from samples to clips, which saves opening every sample."""
    return f"{split}_clips.npz"


def read_frames(data: bytes, path: str) -> Frames:
    """Returns the sample in a file; raises BadData naming what is wrong with it."""
    arrays = read_npz(data, path, _SCHEMA)
    clip = Clip(str(arrays["clip_id"]), int(arrays["t0_us"]))
    return Frames(clip, arrays["frames"], arrays["timestamps"])


def read_index(data: bytes, path: str) -> dict[int, Clip]:
    """Returns the clip of every sample number."""
    arrays = read_npz(data, path, _INDEX_SCHEMA)
    clips = map(Clip, arrays["clip_ids"].tolist(), arrays["t0_us"].tolist())
    return dict(zip(arrays["samples"].tolist(), clips, strict=True))


def index_arrays(clips: Iterable[tuple[int, Clip]]) -> dict[str, Array]:
    """Returns what the index file holds."""
    rows = sorted(clips)
    return {
        "samples": np.array([number for number, _ in rows], np.int64),
        "clip_ids": np.array([clip.clip_id for _, clip in rows], np.str_),
        "t0_us": np.array([clip.t0_us for _, clip in rows], np.int64),
    }
