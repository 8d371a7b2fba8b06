"""A raw tree opened for one set of keys: which clips there are, what is wrong with each, and its parts."""

import re
import shlex
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from lead_trainer.contract.raw_data import SourceTree
from lead_trainer.errors import BadData
from lead_trainer.recipes.distill.ingest.ego_history import ego_history
from lead_trainer.recipes.distill.ingest.frame_files import Clip, Frames
from lead_trainer.recipes.distill.ingest.frame_source import ExtractedFrames, FrameSource, ListedClips, StreamedFrames
from lead_trainer.recipes.distill.ingest.label_files import (
    History,
    Label,
    history_faults,
    history_name,
    label_faults,
    merged,
    read_histories,
    read_labels,
)
from lead_trainer.recipes.distill.ingest.teacher import Question, make_teacher
from lead_trainer.recipes.distill.prepare_keys import ClipKeys

_SHARD = re.compile(r"_shard\d+of(?P<count>\d+)(\.partial)?\.npz")  # after a labels file's name; partial: unfinished
T = TypeVar("T")


class ClipTree:
    """The clips of a raw tree; parts are read when they are asked for, lists and a teacher's weights once."""

    def __init__(self, tree: SourceTree, keys: ClipKeys) -> None:
        self._tree, self._keys = tree, keys
        self._paths = frozenset(file.path for file in tree.files())
        self._once: dict[tuple[str, str], Any] = {}
        self._lock = threading.RLock()  # the build's threads share one teacher

    def clips(self, split: str) -> Mapping[int, Clip]:
        """Returns the clip of every sample number."""
        return self._kept("clips", split, lambda: self._source().clips(split))

    def _source(self) -> FrameSource:
        """Returns where pictures and motion come from."""
        return self._kept("source", "", self._open_source)

    def _open_source(self) -> FrameSource:
        folder = self._keys.frames_dir
        if self._keys.frame_source == "stream":
            return StreamedFrames(ListedClips(self._tree, folder))
        return ExtractedFrames(self._tree, folder)

    def _kept(self, what: str, split: str, make: Callable[[], T]) -> T:
        with self._lock:
            if (what, split) not in self._once:
                self._once[what, split] = make()
            kept: T = self._once[what, split]
            return kept

    def fault(self, split: str, number: int, clip: Clip) -> str:
        """Returns why a sample cannot be used, as a code; empty for a good one."""
        if number in self._failed_numbers(split):
            return "failed_before"
        if self._keys.teacher != "files":
            return self._history_fault(split, clip)
        label = self.labels(split).get(clip)
        if label is None:
            return "no_label"
        return self._history_fault(split, clip) or next(label_faults(label), "")

    def _history_fault(self, split: str, clip: Clip) -> str:
        """Returns why a clip's ego history cannot be used; empty for a good one.

        Where it is made of the motion, a streamed motion is not downloaded for this.
        """
        if self._keys.teacher == "files" or self._history_path(split) in self._paths:
            history = self.histories(split).get(clip)
        elif self._keys.frame_source == "stream":
            return ""
        else:
            try:
                history = ego_history(self._source().motion(clip), clip)
            except BadData:
                history = None
        return "no_ego_history" if history is None else next(history_faults(history), "")

    def frames(self, split: str, number: int, resolution: int) -> Frames:
        """Returns the pictures of one sample."""
        return self._source().frames(split, number, self.clips(split)[number], resolution)

    def label(self, split: str, number: int, seen: Callable[[], tuple[Frames, History]]) -> Label:
        """Returns the label of one sample; asks the teacher, about what is `seen`, where no file holds it."""
        clip = self.clips(split)[number]
        if self._keys.teacher == "files":
            return self.labels(split)[clip]
        teacher = self._kept("teacher", "", lambda: make_teacher(self._keys.teacher))
        (label,) = teacher.label([Question(clip, *seen())])
        return label

    def history(self, split: str, number: int) -> History:
        """Returns the ego history of one sample, of the split's file or made of the clip's motion."""
        clip = self.clips(split)[number]
        if self._keys.teacher == "files" or self._history_path(split) in self._paths:
            return self.histories(split)[clip]
        return ego_history(self._source().motion(clip), clip)

    def labels(self, split: str) -> Mapping[Clip, Label]:
        """Returns the teacher's labels of a split, of its file or merged from its shards."""
        return self._kept("labels", split, lambda: self._read_labels(split))

    def _read_labels(self, split: str) -> Mapping[Clip, Label]:
        path = self._keys.labels(split)
        if path in self._paths:
            return read_labels(self._tree.read(path), path)
        shards = self._shards(path)
        return merged([read_labels(self._tree.read(name), name) for name in shards], shards)

    def histories(self, split: str) -> Mapping[Clip, History]:
        """Returns the ego histories of a split."""
        return self._kept("histories", split, lambda: self._read_histories(split))

    def _read_histories(self, split: str) -> Mapping[Clip, History]:
        path = self._history_path(split)
        if path not in self._paths:
            raise BadData(
                f"there is no file {path}: make it with {stage_command(f'generate_ego_history --split {split}')}"
            )
        return read_histories(self._tree.read(path), path)

    def _history_path(self, split: str) -> str:
        return f"{self._keys.ego_history_dir.strip('/')}/{history_name(split)}"

    def _shards(self, path: str) -> list[str]:
        """Returns the shards of a labels file; raises BadData where there is neither, or one is missing."""
        stem = path.removesuffix(".npz")
        endings = [name.removeprefix(stem) for name in self._paths if name.startswith(stem)]
        counts = sorted({match["count"] for ending in endings if (match := _SHARD.fullmatch(ending))}, key=int)
        if not counts:
            split = next(split for split in ("train", "val") if self._keys.labels(split) == path)
            command = stage_command(f"generate_teacher_labels --split {split}")
            raise BadData(f"there is no file {path}, nor shards of it: make it with {command}")
        if len(counts) > 1:
            raise BadData(f"shards of {path} are of {' and of '.join(counts)} parts; keep those of one run")
        names = [f"{stem}_shard{number}of{counts[0]}.npz" for number in range(int(counts[0]))]
        missing = [name for name in names if name not in self._paths]
        if missing:
            unfinished = f"{missing[0].removesuffix('.npz')}.partial.npz" in self._paths
            raise BadData(
                f"shard {missing[0]} is {'unfinished' if unfinished else 'missing'}, {len(names) - len(missing)} of "
                f"{len(names)} are there; label it, then go on"
            )
        return names

    def _failed_numbers(self, split: str) -> frozenset[int]:
        return self._kept("failed", split, lambda: self._read_failed(split))

    def _read_failed(self, split: str) -> frozenset[int]:
        path = f"{self._keys.frames_dir.strip('/')}/{failed_name(split)}"
        lines = self._tree.read(path).decode().splitlines() if path in self._paths else []
        return frozenset(int(line.split()[0]) for line in lines if line.strip())


def stage_command(stage: str, root: str = "DIR") -> str:
    """Returns the whole command of a data stage; `root` is the raw tree's folder as its reader knows it."""
    return f"python -m lead_trainer.recipes.distill {stage} --root {shlex.quote(root)}"


def failed_name(split: str) -> str:
    """Returns the name of the list of samples that could not be extracted: sample number, clip, reason a line."""
    return f"{split}_failed.txt"
