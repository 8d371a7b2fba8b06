"""The training guide's data scripts as functions on a folder; called by `python -m lead_trainer.recipes.distill STAGE`.

    extract_frames ∥ generate_teacher_labels (GPU for the real teacher, n shards) → generate_ego_history → merge_shards

Each may be killed and called again: what is there is kept, and the files come out the same. A cache's build needs none
of them (`prepare_clips` does their work in its pods); they serve those who prepare a tree once, by hand.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import structlog

from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.distill.ingest.clip_tree import failed_name, stage_command
from lead_trainer.recipes.distill.ingest.ego_history import ego_history, motion_path
from lead_trainer.recipes.distill.ingest.frame_files import (
    Clip,
    index_arrays,
    index_name,
    read_index,
    sample_name,
    sample_number,
)
from lead_trainer.recipes.distill.ingest.frame_source import ExtractedFrames, FrameSource
from lead_trainer.recipes.distill.ingest.label_files import (
    FAILED,
    Label,
    failed_label,
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
SAVE_EVERY, SAVE_EVERY_S = 100, 30.0  # clips, or seconds, between two saves of unfinished labels
MOST_FAILURES = 10  # clips in a row that a teacher cannot label: then it is the teacher that fails
# What one clip's data may cause in a decoder, in numpy or in a model; BadConfig is none of these.
_OF_A_CLIP = (BadData, ValueError, LookupError, ArithmeticError, OSError, RuntimeError, np.linalg.LinAlgError)

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Extracted:
    """What a call of `extract_frames` did, by sample number; `kept` are those of which it wrote nothing."""

    written: tuple[int, ...]
    kept: tuple[int, ...]
    failed: Mapping[int, str]


def extract_frames(
    source: FrameSource, root: Path, split: str, *, resolution: int, num_samples: int, frames_dir: str = FRAMES
) -> Extracted:
    """Writes pictures and motion of the first `num_samples` clips (0: of all), skips what is there, lists failures.

    A clip that cannot be read does not stop the others; its sample number, name and fault are a line of
    `{split}_failed.txt`, where lines about other samples stay. The index of the split is written last, and holds every
    sample that is there, whichever call wrote it.
    """
    folder = root / frames_dir
    clips = source.clips(split)
    written, kept, failed = list[int](), list[int](), dict[int, str]()
    for number, clip in islice(sorted(clips.items()), num_samples or None):
        path = folder / split / sample_name(number)
        try:
            moved = _write_motion(source, root, clip)
            drawn = not path.is_file()
            if drawn:
                write_npz(path, source.frames(split, number, clip, resolution).arrays())
            (written if moved or drawn else kept).append(number)
        except BadData as error:
            failed[number] = f"{clip.clip_id} {error}"
            log.warning("clip failed", split=split, sample=number, clip=clip.clip_id, error=str(error))
    _list_failures(folder / failed_name(split), failed, {*written, *failed})
    _list_clips(folder, split, {**clips, **_listed(folder / index_name(split), written)}, failed)
    return Extracted(tuple(written), tuple(kept), failed)


def _write_motion(source: FrameSource, root: Path, clip: Clip) -> bool:
    """Writes a clip's motion and returns True where there is none; raises BadData unless it reaches back far enough."""
    path = root / motion_path(clip.clip_id)
    if path.is_file():
        return False
    motion = source.motion(clip)
    ego_history(motion, clip)
    write_npz(path, motion.arrays())
    return True


def _list_failures(path: Path, failed: Mapping[int, str], judged: Collection[int]) -> None:
    """Adds the failed samples to the list, in place of its entries of the judged ones."""
    before = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    stay = [line for line in before if line.strip() and int(line.split()[0]) not in judged]
    _write_text(path, "".join(f"{line}\n" for line in [*stay, *(f"{n} {fault}" for n, fault in failed.items())]))


def _listed(path: Path, written: Collection[int]) -> dict[int, Clip]:
    """Returns the index entries of samples that were not rewritten."""
    listed = read_index(path.read_bytes(), str(path)) if path.is_file() else {}
    return {number: clip for number, clip in listed.items() if number not in written}


def _list_clips(folder: Path, split: str, clips: Mapping[int, Clip], failed: Collection[int]) -> None:
    """Writes the index of the samples that are there and did not fail."""
    present = {sample_number(path.name) for path in (folder / split).glob("*.npz")}
    there = [(number, clip) for number, clip in clips.items() if number in present and number not in failed]
    write_npz(folder / index_name(split), index_arrays(there))


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

    Unfinished labels are saved beside their final name every SAVE_EVERY clips or SAVE_EVERY_S seconds, and where the
    call ends early. They are taken up again, and so are those of a file that was written when there were fewer clips.
    A clip that cannot be labelled stops no other: it stands in the file as `failed_label`, in the list beside it, and a
    repeated call asks for it again. MOST_FAILURES in a row are no clip's fault: the last one is raised.
    """
    if not 0 <= shard < num_shards:
        raise BadConfig(f"--shard: found {shard} of {num_shards} shards, expected 0 to {num_shards - 1}")
    source = source or ExtractedFrames(FolderTree(root, links_may_leave=True), FRAMES)
    clips = sorted(source.clips(split).items())[shard::num_shards]
    target = root / LABELS / labels_name(split, shard if num_shards > 1 else None, num_shards)
    partial = target.with_suffix(".partial.npz")
    done = next((path for path in (partial, target) if path.is_file()), None)
    labels = read_labels(done.read_bytes(), str(done)) if done else dict[Clip, Label]()
    labels = {clip: label for clip, label in labels.items() if not label.text.startswith(FAILED)}
    missing = [(number, clip) for number, clip in clips if clip not in labels]
    if done == target and not missing:
        return target
    asking = _Asking(teacher, source, split, resolution)
    saved, saved_at = len(labels), time.monotonic()
    try:
        for first in range(0, len(missing), batch_size):
            labels |= asking.labels(missing[first : first + batch_size])
            if len(labels) - saved >= SAVE_EVERY or time.monotonic() - saved_at >= SAVE_EVERY_S:
                write_npz(partial, label_arrays(labels))
                saved, saved_at = len(labels), time.monotonic()
                on_save(saved)
    except BaseException:
        if len(labels) > saved:
            write_npz(partial, label_arrays(labels))
        raise
    write_npz(target, label_arrays({clip: labels[clip] for _, clip in clips}))
    partial.unlink(missing_ok=True)
    answers = {number: labels[clip].text for number, clip in clips}
    _write_failures(target, {number: text for number, text in answers.items() if text.startswith(FAILED)})
    return target


@dataclass
class _Asking:
    """Asks a teacher, a batch at a time, and each clip of a batch alone where one of them fails."""

    teacher: Teacher
    source: FrameSource
    split: str
    resolution: int
    failures: int = 0  # in a row

    def labels(self, asked: Sequence[tuple[int, Clip]]) -> dict[Clip, Label]:
        """Returns a label a clip; raises the teacher's error after MOST_FAILURES in a row."""
        try:
            found = self._answers(asked)
        except _OF_A_CLIP as error:
            if len(asked) > 1:
                return {clip: label for one in asked for clip, label in self.labels([one]).items()}
            self.failures += 1
            if self.failures >= MOST_FAILURES:
                raise
            ((number, clip),) = asked
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            log.warning("clip not labelled", split=self.split, sample=number, clip=clip.clip_id, error=reason)
            return {clip: failed_label(reason)}
        self.failures = 0
        return found

    def _answers(self, asked: Sequence[tuple[int, Clip]]) -> dict[Clip, Label]:
        questions = [_question(self.source, self.split, number, clip, self.resolution) for number, clip in asked]
        return dict(zip([clip for _, clip in asked], self.teacher.label(questions), strict=True))


def _write_failures(labels: Path, failed: Mapping[int, str]) -> None:
    """Lists the clips that have no label: sample number and reason a line; an empty list is removed."""
    path = labels.with_name(f"{labels.stem}_failed.txt")
    if failed:
        lines = [f"{number} {text.removeprefix(FAILED)}\n" for number, text in failed.items()]
        _write_text(path, "".join(lines))
    else:
        path.unlink(missing_ok=True)


def _question(source: FrameSource, split: str, number: int, clip: Clip, resolution: int) -> Question:
    frames = source.frames(split, number, clip, resolution or _stored_resolution(source, split, number))
    return Question(clip, frames, ego_history(source.motion(clip), clip))


def _stored_resolution(source: FrameSource, split: str, number: int) -> int:
    """Returns the side at which a sample was extracted."""
    if not isinstance(source, ExtractedFrames):
        raise BadConfig("--resolution is not set; set the pictures' side in pixels, for example 224")
    return source.resolution(split, number)


def generate_ego_history(source: FrameSource, root: Path, splits: Sequence[str]) -> list[Path]:
    """Writes the ego histories of every clip of the splits."""
    paths = []
    for split in splits:
        clips = [clip for _, clip in sorted(source.clips(split).items())]
        if not clips:
            command = stage_command(f"extract_frames --split {split}", str(root))
            raise BadData(f"split {split} has no clip; extract its frames with {command}")
        path = root / LABELS / history_name(split)
        write_npz(path, history_arrays({clip: ego_history(source.motion(clip), clip) for clip in clips}))
        paths.append(path)
    return paths


def merge_shards(root: Path, split: str, num_shards: int) -> Path:
    """Writes the labels of all shards as one file, in the order of an unsharded run; raises BadData where one lacks."""
    names = [labels_name(split, shard, num_shards) for shard in range(num_shards)]
    missing = [name for name in names if not (root / LABELS / name).is_file()]
    if missing:
        shard = f"generate_teacher_labels --split {split} --shard {names.index(missing[0])} --num-shards {num_shards}"
        raise BadData(
            f"shard {root / LABELS / missing[0]} is missing: make it with {stage_command(shard, str(root))}, then merge"
        )
    parts = [read_labels((root / LABELS / name).read_bytes(), name) for name in names]
    target = root / LABELS / labels_name(split)
    write_npz(target, label_arrays(merged(parts, names)))
    return target


def label_report(root: Path, split: str) -> dict[str, int]:
    """Returns how many labels have which fault; `valid` counts the others."""
    path = root / LABELS / labels_name(split)
    faults = [next(label_faults(label), "valid") for label in read_labels(path.read_bytes(), str(path)).values()]
    return dict(zip(*(part.tolist() for part in np.unique(faults, return_counts=True)), strict=True))


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
