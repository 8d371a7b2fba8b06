"""Windows of a split: every run of `length` frames of one scene, each `skip`-th frame, starting at every such frame."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lead_trainer.contract.raw_data import RouteVerdict
from lead_trainer.contract.samples import Indices
from lead_trainer.data.cache_tables import CollectionRows
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.world.ingest.scenes import KEPT, Float32

TOO_SHORT = "too_short"


@dataclass(frozen=True)
class Windows:
    """Where each window begins among the rows of a collection, and the scene it is of."""

    first: Indices  # (windows,) row of its first frame
    scene: Indices  # (windows,) position in `scenes`
    scenes: tuple[str, ...]  # routes
    verdicts: tuple[RouteVerdict, ...]  # of every scene: kept, or too_short for this length and skip

    def rows(self, index: int, length: int, skip: int) -> Indices:
        """Returns the rows (length,) of a window's frames."""
        return np.asarray(self.first[index] + skip * np.arange(length, dtype=np.int64))


def count_windows(frames: int, length: int, skip: int) -> int:
    """Returns how many windows a scene of so many frames has."""
    return max(0, -(-frames // skip) - length + 1)


def windows_of(rows: CollectionRows, length: int, skip: int) -> Windows:
    """Returns the windows of a collection, scene after scene; raises BadConfig where no scene is long enough."""
    codes = np.asarray(rows.route.codes, np.int64)
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    counts = np.diff(starts, append=len(codes))
    scenes = tuple(rows.route[int(start)] for start in starts)
    frames = np.asarray(rows.frame, np.int64) - np.repeat(np.asarray(rows.frame, np.int64)[starts], counts)
    if len(set(scenes)) < len(scenes) or (frames != np.arange(len(codes)) - np.repeat(starts, counts)).any():
        raise BadData(f"collection {rows.name}: the frames of a scene do not follow each other; build the cache again")
    numbers = [count_windows(int(count), length, skip) for count in counts]
    verdicts = tuple(
        RouteVerdict(scene, number > 0, KEPT if number else TOO_SHORT, int(count))
        for scene, number, count in zip(scenes, numbers, counts, strict=True)
    )
    if not sum(numbers):
        raise BadConfig(_none_long_enough(rows.name, counts.tolist(), length, skip))
    first = [start + skip * np.arange(number, dtype=np.int64) for start, number in zip(starts, numbers, strict=True)]
    return Windows(np.concatenate(first), np.repeat(np.arange(len(scenes)), numbers), scenes, verdicts)


def skipped_actions(actions: Float32, skip: int) -> Float32:
    """Returns actions (n, 4) between every `skip`-th frame of (n * skip, 4): pedals and wheel averaged, last gear."""
    if skip == 1:
        return actions
    steps = actions.reshape(-1, skip, actions.shape[1])
    merged = np.asarray(steps.mean(axis=1, dtype=np.float64), np.float32)
    merged[:, 3] = steps[:, -1, 3]
    return merged


def _none_long_enough(collection: str, counts: Sequence[int], length: int, skip: int) -> str:
    if not counts:
        return f"collection {collection} has no scene; set data.split=seeded, or add scenes to that split"
    longest = -(-max(counts) // skip)
    return (
        f"data.sequence_length: found {length} with data.frame_skip {skip}, but the longest scene of {collection} has "
        f"{longest} such frames; set data.sequence_length to at most {longest}"
    )
