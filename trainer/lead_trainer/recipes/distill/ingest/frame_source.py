"""Where pictures and motion of a clip come from: files of the raw tree, or the PhysicalAI-AV data set itself.

Both give the same `Frames` and ego history for the same clip, so nothing after them knows which it was.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.contract.raw_data import SourceTree
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.distill.config import CAMERAS, FRAMES_PER_CAMERA
from lead_trainer.recipes.distill.ingest.ego_history import Motion, history_times_us, motion_path, read_motion
from lead_trainer.recipes.distill.ingest.frame_files import (
    FRAME_STEP_US,
    Clip,
    Frames,
    index_name,
    read_frames,
    read_index,
    sample_name,
    sample_number,
)

DEV_KIT = "physical_ai_av"
DEFAULT_T0_US = 5_100_000  # of the teacher's own examples


class ListsClips(Protocol):
    """The clips of a split."""

    def clips(self, split: str) -> Mapping[int, Clip]:
        """Returns every sample's clip by sample number."""


class FrameSource(ListsClips, Protocol):
    """The clips of a split, and what was seen and driven in each."""

    def frames(self, split: str, number: int, clip: Clip, resolution: int) -> Frames:
        """Returns a sample's pictures at resolution x resolution; raises BadData naming the clip."""

    def motion(self, clip: Clip) -> Motion:
        """Returns how the clip's car drove up to t0 at least; raises BadData naming the clip."""


class ExtractedFrames:
    """`extracted_frames/` and `egomotion/` of a raw tree."""

    def __init__(self, tree: SourceTree, folder: str) -> None:
        self._tree, self._folder = tree, folder.strip("/")

    @cached_property
    def _paths(self) -> frozenset[str]:
        return frozenset(file.path for file in self._tree.files())

    def clips(self, split: str) -> Mapping[int, Clip]:
        """Reads the split's index, or, where there is none, every sample's own file."""
        index = f"{self._folder}/{index_name(split)}"
        present = self._numbers(split)
        if index in self._paths:
            listed = read_index(self._tree.read(index), index)
            return {number: clip for number, clip in listed.items() if number in present}
        paths = {number: self.path(split, number) for number in present}
        return {number: read_frames(self._tree.read(path), path).clip for number, path in paths.items()}

    def path(self, split: str, number: int) -> str:
        """Returns where a sample's pictures lie."""
        return f"{self._folder}/{split}/{sample_name(number)}"

    def frames(self, split: str, number: int, clip: Clip, resolution: int) -> Frames:
        """Reads a sample's file, its pictures made smaller where it was extracted larger."""
        path = self.path(split, number)
        found = read_frames(self._tree.read(path), path)
        if found.clip != clip:
            raise BadData(f"file {path} shows clip {found.clip}, but the index lists {clip}; extract the frames again")
        height, width = found.pictures.shape[2:4]
        if min(height, width) < resolution:
            raise BadConfig(
                f"resolution: found {resolution}, but {path} was extracted at {height} x {width}; pictures are never "
                "made larger"
            )
        return Frames(clip, resized(found.pictures, resolution), found.timestamps)

    def resolution(self, split: str, number: int) -> int:
        """Returns the side at which a sample was extracted, the shorter one."""
        path = self.path(split, number)
        return int(min(read_frames(self._tree.read(path), path).pictures.shape[2:4]))

    def motion(self, clip: Clip) -> Motion:
        """Reads the clip's motion."""
        path = motion_path(clip.clip_id)
        return read_motion(self._tree.read(path), path)

    def _numbers(self, split: str) -> list[int]:
        prefix = f"{self._folder}/{split}/"
        numbers = (sample_number(path.removeprefix(prefix)) for path in self._paths if path.startswith(prefix))
        return sorted(number for number in numbers if number is not None)


class StreamedFrames:
    """The PhysicalAI-AV data set through its developer kit, which downloads what it is asked for.

    Needs the package `physical_ai_av` and a user's own access to the gated data set. The clips of a split are listed by
    the index in the raw tree, so that a cache's digest holds it.
    """

    def __init__(self, listed: ListsClips | None = None) -> None:
        """Takes the index that lists the clips; None lists the data set's own."""
        try:
            import physical_ai_av
        except ImportError as error:
            raise BadConfig(
                f"frame_source: found 'stream', which needs the package {DEV_KIT} in the trainer image; install it, or "
                "extract the frames first and set frame_source=extracted"
            ) from error
        self._kit: Any = physical_ai_av.PhysicalAIAVDatasetInterface()
        self._listed = listed

    def clips(self, split: str) -> Mapping[int, Clip]:
        """Returns the valid clips of a split in the data set's order, each at its default moment."""
        if self._listed is not None:
            return self._listed.clips(split)
        index = self._kit.clip_index
        names = index[(index["split"] == split) & index["clip_is_valid"]].index
        return {number: Clip(str(name), DEFAULT_T0_US) for number, name in enumerate(names)}

    def frames(self, split: str, number: int, clip: Clip, resolution: int) -> Frames:
        """Downloads and decodes four pictures of each camera."""
        times = clip.t0_us + FRAME_STEP_US * np.arange(1 - FRAMES_PER_CAMERA, 1)
        pictures, stamps = [], []
        for camera in CAMERAS:
            video = self._feature(clip, f"CAMERA_{camera.upper()}_{'30' if camera == 'front_tele' else '120'}FOV")
            images, taken = video.decode_images_from_timestamps(times.astype(np.int64))
            pictures.append(resized(np.asarray(images, np.uint8)[None], resolution)[0])
            stamps.append(np.asarray(taken, np.int64))
        return Frames(clip, np.stack(pictures), np.stack(stamps))

    def motion(self, clip: Clip) -> Motion:
        """Downloads the clip's motion at the times of its ego history."""
        times = history_times_us(clip)
        pose = self._feature(clip, "EGOMOTION")(times).pose
        return Motion(times, pose.translation, pose.rotation.as_quat())

    def _feature(self, clip: Clip, name: str) -> Any:
        group = self._kit.features.LABELS if name == "EGOMOTION" else self._kit.features.CAMERA
        try:
            return self._kit.get_clip_feature(clip.clip_id, getattr(group, name), maybe_stream=True)
        except (OSError, KeyError, ValueError) as error:
            raise BadData(f"clip {clip.clip_id}: {name} cannot be read from the data set: {error}") from error


class ListedClips:
    """The index of a split and nothing else: what a streaming build needs of the raw tree."""

    def __init__(self, tree: SourceTree, folder: str) -> None:
        self._tree, self._folder = tree, folder.strip("/")

    def clips(self, split: str) -> Mapping[int, Clip]:
        """Reads the split's index."""
        path = f"{self._folder}/{index_name(split)}"
        return read_index(self._tree.read(path), path)


def resized(pictures: npt.NDArray[np.uint8], side: int) -> npt.NDArray[np.uint8]:
    """Returns pictures (C, F, H, W, 3) as (C, F, side, side, 3), by pixel areas; unchanged where they fit."""
    if pictures.shape[2:4] == (side, side):
        return pictures
    flat = pictures.reshape(-1, *pictures.shape[2:])
    small = [cv2.resize(picture, (side, side), interpolation=cv2.INTER_AREA) for picture in flat]
    return np.stack(small).reshape(*pictures.shape[:2], side, side, 3)
