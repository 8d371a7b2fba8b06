"""What each stage of a build makes of one clip, and the record that all of it comes to.

Used by `prepare_clips`. Names and work are those of the guide's scripts (`stages.py` does them by hand, folder by
folder). A stage that no pod has done before is done here, from the same sources, so that the record is the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.contract.preparation import Fields
from lead_trainer.contract.raw_data import SampleKey, SourceTree
from lead_trainer.data.array_block import pack_arrays, unpack_arrays
from lead_trainer.data.build_stages import made_by
from lead_trainer.errors import BadData
from lead_trainer.recipes.distill.config import CAMERAS, FRAMES_PER_CAMERA
from lead_trainer.recipes.distill.ingest.actions import fitted_actions, initial_speed
from lead_trainer.recipes.distill.ingest.clip_tree import ClipTree
from lead_trainer.recipes.distill.ingest.frame_files import Frames
from lead_trainer.recipes.distill.ingest.label_files import DT_S, History, Label, label_faults, yaw_of
from lead_trainer.recipes.distill.prepare_keys import ClipKeys

EXTRACT, LABELS, HISTORY = "extract", "labels", "history"
JPEG_QUALITY = 95


def stages_of(keys: ClipKeys) -> tuple[str, ...]:
    """Returns the stages with something to make: labels and histories that lie in files are made already."""
    return (EXTRACT,) if keys.teacher == "files" else (EXTRACT, LABELS, HISTORY)


@dataclass(frozen=True)
class ClipWork:
    """One sample of a tree; every part is made, or read where a stage has made it, when it is asked for."""

    tree: SourceTree
    clips: ClipTree
    sample: SampleKey
    resolution: int

    def fields(self, stage: str) -> Fields:
        """Returns what a stage makes; raises BadData naming the clip, and what its label lacks."""
        if stage == EXTRACT:
            return self._pictures
        if stage == HISTORY:
            return {"history": pack_arrays(_pose_arrays("history", self._history), compress=False)}
        label, arrays = self._label, _pose_arrays("trajectory", self._label)
        packed = pack_arrays({**arrays, "embedding": label.embedding}, compress=False)
        return {"label": packed, "reasoning": label.text.encode()}

    def record(self) -> Fields:
        """Returns all fields of the sample; raises BadData like `fields`."""
        arrays = pack_arrays(label_arrays(self._history, self._label), compress=False)
        return {**self._pictures, "arrays": arrays, "reasoning": self._label.text.encode()}

    @property
    def _split(self) -> str:
        return self.sample.route.partition("/")[0]

    @cached_property
    def _frames(self) -> Frames:
        return self.clips.frames(self._split, self.sample.frame, self.resolution)

    @cached_property
    def _pictures(self) -> Fields:
        made = made_by(self.tree, EXTRACT, self.sample)
        return jpegs(self._frames) if made is None else made

    @cached_property
    def _history(self) -> History:
        made = made_by(self.tree, HISTORY, self.sample)
        if made is None:
            return self.clips.history(self._split, self.sample.frame)
        arrays = unpack_arrays(made["history"], compressed=False)
        return History(arrays["history_xyz"], arrays["history_rot"])

    @cached_property
    def _label(self) -> Label:
        made = made_by(self.tree, LABELS, self.sample)
        if made is not None:
            arrays = unpack_arrays(made["label"], compressed=False)
            text = made["reasoning"].decode()
            return Label(arrays["trajectory_xyz"], arrays["trajectory_rot"], text, arrays["embedding"])
        number = self.sample.frame
        label = self.clips.label(self._split, number, lambda: (self._frames, self._history))
        if faults := list(label_faults(label)):
            raise BadData(
                f"{self.sample.route}: the teacher's label is of no use ({', '.join(faults)}); write sample {number} "
                f"into {self._split}_failed.txt beside the frames, or label it again"
            )
        return label


def jpegs(frames: Frames) -> dict[str, bytes]:
    """Returns every picture as JPEG, by field name."""
    fields = {}
    for camera in range(len(CAMERAS)):
        for time in range(FRAMES_PER_CAMERA):
            picture = np.ascontiguousarray(frames.pictures[camera, time, :, :, ::-1])
            good, encoded = cv2.imencode(".jpg", picture, [int(cv2.IMWRITE_JPEG_QUALITY), JPEG_QUALITY])
            if not good:
                raise BadData(f"clip {frames.clip.clip_id}: a picture of shape {picture.shape} cannot become a JPEG")
            fields[frame_field(camera, time)] = encoded.tobytes()
    return fields


def frame_field(camera: int, time: int) -> str:
    """Returns the field of one picture."""
    return f"frame_{CAMERAS[camera]}_{time}"


def label_arrays(history: History, label: Label) -> dict[str, npt.NDArray[Any]]:
    """Returns poses and label of a sample, the speed at t0, and the actions that drive the label from there."""
    yaw = yaw_of(label.rotations.astype(np.float64))
    past = history.xyz[:, :2].astype(np.float64), np.unwrap(yaw_of(history.rotations.astype(np.float64)))
    speed = initial_speed(*past, DT_S)
    actions = fitted_actions(label.xyz[:, :2].astype(np.float64), yaw, speed, DT_S)
    return {
        **_pose_arrays("history", history),
        **_pose_arrays("trajectory", label),
        "embedding": label.embedding,
        "speed": np.array([speed], np.float32),
        "actions": actions.astype(np.float32),
    }


def _pose_arrays(name: str, poses: History | Label) -> Mapping[str, npt.NDArray[Any]]:
    return {f"{name}_xyz": poses.xyz, f"{name}_rot": poses.rotations}
