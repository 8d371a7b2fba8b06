"""The training guide's data scripts as functions on a folder; called by `python -m lead_trainer.recipes.distill STAGE`.

    extract_frames ∥ generate_teacher_labels (GPU for the real teacher, n shards) → generate_ego_history → merge_shards

Each may be killed and called again: what is there is kept, and the files come out the same. A cache's build needs none
of them (`prepare_clips` does their work in its pods); they serve those who prepare a tree once, by hand.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import structlog

from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.distill.ingest.clip_tree import failed_name
from lead_trainer.recipes.distill.ingest.frame_files import Clip, index_arrays, index_name, sample_name
from lead_trainer.recipes.distill.ingest.frame_source import ExtractedFrames, FrameSource
from lead_trainer.recipes.distill.ingest.label_files import (
    Label,
    history_arrays,
    history_name,
    label_arrays,
    label_faults,
    labels_name,
    merged,
    read_labels,
)
from lead_trainer.recipes.distill.ingest.npz import write_npz
from lead_trainer.recipes.distill.ingest.teacher import Question, Teacher

FRAMES, LABELS = "extracted_frames", "teacher_labels"  # folders below the root, as in the guide
SAVE_EVERY = 100  # clips between two saves of unfinished labels

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Extracted:
    """What a call of `extract_frames` did, by sample number."""

    written: tuple[int, ...]
    kept: tuple[int, ...]
    failed: Mapping[int, str]


def extract_frames(
    source: FrameSource, root: Path, split: str, *, resolution: int, num_samples: int, frames_dir: str = FRAMES
) -> Extracted:
    """Writes the pictures of the first `num_samples` clips (0: of all), skips those that are there, lists failures.

    A clip that cannot be read does not stop the others; its sample number, name and fault are a line of
    `{split}_failed.txt`. The index of the split is written last.
    """
    folder = root / frames_dir
    clips = list(islice(sorted(source.clips(split).items()), num_samples or None))
    written, kept, failed = [], [], dict[int, str]()
    for number, clip in clips:
        path = folder / split / sample_name(number)
        if path.is_file():
            kept.append(number)
            continue
        try:
            write_npz(path, source.frames(split, number, clip, resolution).arrays())
            written.append(number)
        except BadData as error:
            failed[number] = f"{clip.clip_id} {error}"
            log.warning("clip failed", split=split, sample=number, clip=clip.clip_id, error=str(error))
    _write_text(folder / failed_name(split), "".join(f"{number} {fault}\n" for number, fault in failed.items()))
    write_npz(folder / index_name(split), index_arrays([pair for pair in clips if pair[0] not in failed]))
    return Extracted(tuple(written), tuple(kept), failed)


def generate_teacher_labels(
    teacher: Teacher,
    root: Path,
    split: str,
    *,
    batch_size: int = 4,
    shard: int = 0,
    num_shards: int = 1,
    source: FrameSource | None = None,
    resolution: int = 0,
    on_save: Callable[[int], None] = lambda labels: None,
) -> Path:
    """Labels every `num_shards`-th clip from the `shard`-th on, `batch_size` at a time, and returns the file.

    Unfinished labels are saved every SAVE_EVERY clips beside their final name, and taken up again.
    """
    if not 0 <= shard < num_shards:
        raise BadConfig(f"--shard: found {shard} of {num_shards} shards, expected 0 to {num_shards - 1}")
    source = source or ExtractedFrames(FolderTree(root), FRAMES)
    clips = sorted(source.clips(split).items())[shard::num_shards]
    target = root / LABELS / labels_name(split, shard if num_shards > 1 else None, num_shards)
    if target.is_file():
        return target
    partial = target.with_suffix(".partial.npz")
    labels = read_labels(partial.read_bytes(), str(partial)) if partial.is_file() else dict[Clip, Label]()
    missing = [(number, clip) for number, clip in clips if clip not in labels]
    saved = len(labels)
    for first in range(0, len(missing), batch_size):
        asked = missing[first : first + batch_size]
        questions = [_question(source, split, number, clip, resolution) for number, clip in asked]
        labels |= dict(zip([clip for _, clip in asked], teacher.label(questions), strict=True))
        if len(labels) - saved >= SAVE_EVERY:
            write_npz(partial, label_arrays(labels))
            saved = len(labels)
            on_save(saved)
    write_npz(target, label_arrays(labels))
    partial.unlink(missing_ok=True)
    return target


def _question(source: FrameSource, split: str, number: int, clip: Clip, resolution: int) -> Question:
    frames = source.frames(split, number, clip, resolution or _stored_resolution(source, split, number))
    return Question(clip, frames, source.history(clip))


def _stored_resolution(source: FrameSource, split: str, number: int) -> int:
    """Returns the side at which a sample was extracted."""
    if not isinstance(source, ExtractedFrames):
        raise BadConfig("--resolution is not set; say the pictures' side in pixels, for example 224")
    return source.resolution(split, number)


def generate_ego_history(source: FrameSource, root: Path, splits: Sequence[str]) -> list[Path]:
    """Writes the ego histories of every clip of the splits."""
    paths = []
    for split in splits:
        clips = [clip for _, clip in sorted(source.clips(split).items())]
        if not clips:
            raise BadData(f"split {split} has no clip: extract its frames first")
        path = root / LABELS / history_name(split)
        write_npz(path, history_arrays({clip: source.history(clip) for clip in clips}))
        paths.append(path)
    return paths


def merge_shards(root: Path, split: str, num_shards: int) -> Path:
    """Writes the labels of all shards as one file, in the order of an unsharded run; raises BadData where one lacks."""
    names = [labels_name(split, shard, num_shards) for shard in range(num_shards)]
    missing = [name for name in names if not (root / LABELS / name).is_file()]
    if missing:
        raise BadData(f"shard {root / LABELS / missing[0]} is missing: label it with --shard, then merge")
    parts = [read_labels((root / LABELS / name).read_bytes(), name) for name in names]
    target = root / LABELS / labels_name(split)
    write_npz(target, label_arrays(merged(parts, names)))
    return target


def label_report(root: Path, split: str) -> dict[str, int]:
    """Returns how many labels have which fault; `sound` counts the others."""
    path = root / LABELS / labels_name(split)
    faults = [next(label_faults(label), "sound") for label in read_labels(path.read_bytes(), str(path)).values()]
    return dict(zip(*(part.tolist() for part in np.unique(faults, return_counts=True)), strict=True))


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
