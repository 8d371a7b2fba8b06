"""Writes the made-up raw tree: motion, drawn pictures, ego histories and scripted labels, the same for the same seed.

A picture is a flat road that bends as the car turns, brighter the faster it drives: enough for a student to learn from.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lead_trainer.recipes.distill.config import CAMERAS, FRAMES_PER_CAMERA
from lead_trainer.recipes.distill.drawn_drives import T0_US, drive
from lead_trainer.recipes.distill.ingest.ego_history import Motion, ego_history
from lead_trainer.recipes.distill.ingest.frame_files import FRAME_STEP_US, Clip, Frames
from lead_trainer.recipes.distill.ingest.label_files import History, yaw_of
from lead_trainer.recipes.distill.ingest.teacher import ScriptedTeacher
from lead_trainer.recipes.distill.stages import extract_frames, generate_ego_history, generate_teacher_labels

SIDEWAYS = {"cross_left": 0.35, "front_wide": 0.0, "cross_right": -0.35, "front_tele": 0.0}  # of the picture's width


class DrawnClips:
    """A frame source that makes clips up."""

    def __init__(self, counts: Mapping[str, int], seed: int) -> None:
        self._counts, self._seed = counts, seed

    def clips(self, split: str) -> Mapping[int, Clip]:
        """Returns the made-up clips of a split."""
        return {number: Clip(f"{split}-{self._seed}-{number:05d}", T0_US) for number in range(self._counts[split])}

    def frames(self, split: str, number: int, clip: Clip, resolution: int) -> Frames:
        """Draws a clip."""
        times = clip.t0_us + FRAME_STEP_US * np.arange(1 - FRAMES_PER_CAMERA, 1)
        history = ego_history(self.motion(clip), clip)
        pictures = [draw(history, camera, resolution) for camera in CAMERAS]
        return Frames(clip, np.stack(pictures), np.tile(times, (len(CAMERAS), 1)))

    def motion(self, clip: Clip) -> Motion:
        """Returns the made-up drive."""
        return drive(drive_seed(clip))


def drive_seed(clip: Clip) -> int:
    """Returns the seed of a made-up clip's drive."""
    split, seed, number = clip.clip_id.rsplit("-", 2)
    return int(seed) * 1_000_003 + int(number) * 2 + (split == "val")


def draw(history: History, camera: str, side: int) -> npt.NDArray[np.uint8]:
    """Returns the pictures (4, side, side, 3) of one camera, the last one at t0."""
    yaw = yaw_of(history.rotations)
    speed = np.linalg.norm(np.diff(history.xyz, axis=0), axis=1)
    rows, columns = np.mgrid[0:side, 0:side] / side
    below = np.clip(2.0 * rows - 1.0, 0.0, 1.0)  # 0 at the horizon, 1 at the bottom
    pictures = []
    for step in range(-FRAMES_PER_CAMERA, 0):
        bend = float(yaw[step] - yaw[step - 1])
        middle = 0.5 + SIDEWAYS[camera] - 6.0 * bend * (1.0 - below) ** 2
        road = (np.abs(columns - middle) < 0.05 + 0.3 * below) & (rows > 0.5)
        grey = np.where(road, 60.0 + 100.0 * min(float(speed[step]), 1.4), np.where(rows > 0.5, 90.0, 200.0))
        pictures.append(np.stack([grey, grey, np.where(rows > 0.5, 0.8 * grey, 255.0)], -1))
    return np.stack(pictures).astype(np.uint8)


def write_example_tree(root: Path, *, train: int, val: int, resolution: int, seed: int = 0) -> None:
    """Writes frames, motion, histories and labels of a few clips below `root`, by the stages themselves."""
    source = DrawnClips({"train": train, "val": val}, seed)
    for split in ("train", "val"):
        extract_frames(source, root, split, resolution=resolution, num_samples=0)
        generate_teacher_labels(ScriptedTeacher(), root, split, source=source, resolution=resolution)
    generate_ego_history(source, root, ("train", "val"))
