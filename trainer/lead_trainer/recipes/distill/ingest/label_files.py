"""The files of `teacher_labels/`: the teacher's output for each clip, and the ego history before it.

`{split}_labels.npz` or its shards `{split}_labels_shard{i}of{n}.npz`, and `{split}_ego_history.npz`. Frame: the ego's
at t0, x ahead, y left, z up; metres; rotations are matrices from the pose's frame to that one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from lead_trainer.errors import BadData
from lead_trainer.recipes.distill.config import EMBEDDING_WIDTH, HORIZONS
from lead_trainer.recipes.distill.ingest.frame_files import Clip
from lead_trainer.recipes.distill.ingest.npz import Array, read_npz

PAST, FUTURE, DT_S = HORIZONS["none"].past, HORIZONS["none"].future, HORIZONS["none"].dt_s
MAX_SPEED_MPS = 50.0  # between two steps; beyond it a label jumps
ROTATION_TOLERANCE = 1e-3
AT_ORIGIN = 1e-2  # metres, and of each entry of a rotation
FAILED = "failed: "  # begins the text of a clip that the teacher could not label; the reason follows
_LABEL_SCHEMA = {
    "clip_ids": ("U", (None,)),
    "t0_us": ("i8", (None,)),
    "trajectory_xyz": ("f4", (None, FUTURE, 3)),
    "trajectory_rot": ("f4", (None, FUTURE, 3, 3)),
    "coc_texts": ("U", (None,)),
    "coc_embeddings": ("f4", (None, EMBEDDING_WIDTH)),
}
_HISTORY_SCHEMA = {
    "clip_ids": ("U", (None,)),
    "t0_us": ("i8", (None,)),
    "ego_history_xyz": ("f4", (None, PAST, 3)),
    "ego_history_rot": ("f4", (None, PAST, 3, 3)),
}

Floats = npt.NDArray[np.float32]
T = TypeVar("T")


@dataclass(frozen=True)
class Label:
    """The teacher's output for one clip: xyz (64, 3), rotations (64, 3, 3), its reasoning and that text's embedding."""

    xyz: Floats
    rotations: Floats
    text: str
    embedding: Floats


@dataclass(frozen=True)
class History:
    """Sixteen past poses, the last one at t0: xyz (16, 3) and rotations (16, 3, 3)."""

    xyz: Floats
    rotations: Floats


def labels_name(split: str, shard: int | None = None, shards: int = 1) -> str:
    """Returns the name of the labels' file, or of one shard's, counted from 0."""
    return f"{split}_labels.npz" if shard is None else f"{split}_labels_shard{shard}of{shards}.npz"


def history_name(split: str) -> str:
    """Returns the name of the ego histories' file."""
    return f"{split}_ego_history.npz"


def read_labels(data: bytes, path: str) -> dict[Clip, Label]:
    """Returns every clip's label in the file's order; raises BadData for a clip that is there twice."""
    arrays = read_npz(data, path, _LABEL_SCHEMA)
    rows = zip(
        arrays["trajectory_xyz"], arrays["trajectory_rot"], arrays["coc_texts"].tolist(), arrays["coc_embeddings"],
        strict=True,
    )  # fmt: skip
    return _by_clip(path, arrays, [Label(*row) for row in rows])


def label_arrays(labels: Mapping[Clip, Label]) -> dict[str, Array]:
    """Returns what a labels file holds, in the mapping's order."""
    found = list(labels.values())
    return {
        **_clip_arrays(labels),
        "trajectory_xyz": np.array([label.xyz for label in found], np.float32).reshape(-1, FUTURE, 3),
        "trajectory_rot": np.array([label.rotations for label in found], np.float32).reshape(-1, FUTURE, 3, 3),
        "coc_texts": np.array([label.text for label in found], np.str_),
        "coc_embeddings": np.array([label.embedding for label in found], np.float32).reshape(-1, EMBEDDING_WIDTH),
    }


def read_histories(data: bytes, path: str) -> dict[Clip, History]:
    """Returns every clip's history in the file's order."""
    arrays = read_npz(data, path, _HISTORY_SCHEMA)
    rows = zip(arrays["ego_history_xyz"], arrays["ego_history_rot"], strict=True)
    return _by_clip(path, arrays, [History(*row) for row in rows])


def history_arrays(histories: Mapping[Clip, History]) -> dict[str, Array]:
    """Returns what a history file holds, in the mapping's order."""
    found = list(histories.values())
    return {
        **_clip_arrays(histories),
        "ego_history_xyz": np.array([history.xyz for history in found], np.float32).reshape(-1, PAST, 3),
        "ego_history_rot": np.array([history.rotations for history in found], np.float32).reshape(-1, PAST, 3, 3),
    }


def merged(shards: Sequence[Mapping[Clip, Label]], names: Sequence[str]) -> dict[Clip, Label]:
    """Returns the labels of all shards in the order of an unsharded run: shard i of n holds rows i, i + n, i + 2n, …

    Raises BadData naming the shard whose length does not fit the others', and a clip that two of them hold.
    """
    lengths = [len(shard) for shard in shards]
    total = sum(lengths)
    expected = [len(range(number, total, len(shards))) for number in range(len(shards))]
    for name, length, wanted in zip(names, lengths, expected, strict=True):
        if length != wanted:
            raise BadData(f"shard {name} holds {length} labels, expected {wanted} of {total}; finish it, then merge")
    rows = [list(shard.items()) for shard in shards]
    labels: dict[Clip, Label] = {}
    for row in range(total):
        clip, label = rows[row % len(shards)][row // len(shards)]
        if clip in labels:
            raise BadData(
                f"clip {clip.clip_id} at {clip.t0_us} µs is in {names[row % len(shards)]} and in another shard"
            )
        labels[clip] = label
    return labels


def label_faults(label: Label) -> Iterator[str]:
    """Yields what makes a label useless, as codes: teacher_failed; label_not_finite, _bad_rotation, _jumps."""
    if label.text.startswith(FAILED):
        yield "teacher_failed"
    elif not np.isfinite(label.embedding).all():
        yield "label_not_finite"
    else:
        start = np.zeros((1, 3), np.float32)
        yield from _pose_faults("label", np.concatenate([start, label.xyz]), label.rotations)


def failed_label(reason: str) -> Label:
    """Returns what stands in the place of a clip's label that the teacher could not give: no numbers, and the reason.

    So the rows of every shard stay where `merged` expects them; a build leaves such a clip out.
    """
    nothing = np.full((FUTURE, 3, 3), np.nan, np.float32)
    return Label(nothing[:, 0], nothing, f"{FAILED}{reason}", np.full(EMBEDDING_WIDTH, np.nan, np.float32))


def history_faults(history: History) -> Iterator[str]:
    """Yields what makes an ego history useless, as codes: history_not_finite, _bad_rotation, _jumps, _not_at_t0.

    The last pose is t0 and therefore the origin.
    """
    codes = list(_pose_faults("history", history.xyz, history.rotations))
    yield from codes
    turned = np.abs(history.rotations[-1] - np.eye(3)).max()
    if not codes and max(np.abs(history.xyz[-1]).max(), turned) > AT_ORIGIN:
        yield "history_not_at_t0"


def _pose_faults(kind: str, xyz: Floats, rotations: Floats) -> Iterator[str]:
    """Yields the faults of positions (T, 3), DT_S apart, and of rotations."""
    if not (np.isfinite(xyz).all() and np.isfinite(rotations).all()):
        yield f"{kind}_not_finite"
        return
    products = rotations @ rotations.transpose(0, 2, 1)
    turned = np.linalg.det(rotations.astype(np.float64))
    if np.abs(products - np.eye(3)).max() > ROTATION_TOLERANCE or (turned < 0).any():
        yield f"{kind}_bad_rotation"
    if np.linalg.norm(np.diff(xyz, axis=0), axis=1).max() > MAX_SPEED_MPS * DT_S:
        yield f"{kind}_jumps"


def yaw_of(rotations: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """Returns the heading in radians of rotation matrices (…, 3, 3)."""
    yaw: npt.NDArray[np.floating] = np.arctan2(rotations[..., 1, 0], rotations[..., 0, 0])
    return yaw


def _clip_arrays(clips: Mapping[Clip, object]) -> dict[str, Array]:
    return {
        "clip_ids": np.array([clip.clip_id for clip in clips], np.str_),
        "t0_us": np.array([clip.t0_us for clip in clips], np.int64),
    }


def _by_clip(path: str, arrays: Mapping[str, Array], rows: Sequence[T]) -> dict[Clip, T]:
    clips = [Clip(*pair) for pair in zip(arrays["clip_ids"].tolist(), arrays["t0_us"].tolist(), strict=True)]
    found = dict(zip(clips, rows, strict=True))
    if len(found) < len(clips):
        twice = next(clip for clip in clips if clips.count(clip) > 1)
        raise BadData(f"file {path} holds clip {twice.clip_id} at {twice.t0_us} µs twice; write it again")
    return found
