"""The student's samples: from a cache's records, or dummies for a first try without any data.

One sample is a pure function of (index, config.seed) and the cache; several threads may call `load` at once.
"""

from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.contract.samples import Cache, Sample
from lead_trainer.data.array_block import unpack_arrays
from lead_trainer.data.in_shards import RowsInShards
from lead_trainer.data.picture_bytes import decoded
from lead_trainer.data.sample_order import hash64
from lead_trainer.errors import BadData
from lead_trainer.recipes.distill.action_stats import stats_of
from lead_trainer.recipes.distill.clip_stages import frame_field
from lead_trainer.recipes.distill.config import CAMERAS, FRAMES_PER_CAMERA, DistillConfig
from lead_trainer.recipes.distill.ingest.label_files import FUTURE, yaw_of
from lead_trainer.recipes.distill.prepare_keys import ClipKeys
from lead_trainer.recipes.prepare_keys import refuse_other_preparation

_DUMMY = 5  # random stream of dummy pictures

Array = npt.NDArray[Any]


class ClipSamples(RowsInShards):
    """The clips of one split of a cache."""

    def __init__(self, config: DistillConfig, cache: Cache, split: str) -> None:
        refuse_other_preparation(ClipKeys.of(config).as_mapping(), cache.config)
        cv2.setNumThreads(1)  # the loader's threads share the cores already
        self._config, self._cache = config, cache
        self._rows = cache.rows(split)
        if split == "train":
            stats_of(cache.facts, cache.digest[:12])  # without any the units of the student's actions are not known

    def __len__(self) -> int:
        """Number of clips."""
        return len(self._rows.sample)

    def epoch_draw(self, epoch: int) -> npt.NDArray[np.int64]:
        """Returns every clip once."""
        return np.arange(len(self), dtype=np.int64)

    def name(self, index: int) -> str:
        """Returns split, clip and moment of a sample, for messages."""
        return str(self._rows.route[index])

    def load(self, index: int, epoch: int) -> Sample:
        """Returns one clip with its pictures, or with dummy ones where `offline` is set."""
        number = int(self._rows.sample[index])
        record = self._cache.fields(number)
        arrays = unpack_arrays(record["arrays"], compressed=False)
        side = self._config.resolution
        pictures = dummy_pictures(self._config.seed, number, side) if self._config.offline else _pictures(record, side)
        return {"frames": pictures, **label_entries(arrays)}


def label_entries(arrays: Mapping[str, Array]) -> Sample:
    """Returns what a sample holds beside its pictures: history (16, 4), targets, speed, actions and embedding."""
    past = yaw_of(arrays["history_rot"])
    history = np.stack([arrays["history_xyz"][:, 0], arrays["history_xyz"][:, 1], np.sin(past), np.cos(past)], -1)
    return {
        "history": history.astype(np.float32),
        "target_xy": np.ascontiguousarray(arrays["trajectory_xyz"][:, :2]),
        "target_yaw": yaw_of(arrays["trajectory_rot"]).astype(np.float32),
        "target_valid": np.ones(FUTURE, np.bool_),
        "speed": np.float32(arrays["speed"][0]),
        "actions": np.array(arrays["actions"]),
        "embedding": np.array(arrays["embedding"]),
    }


def _pictures(record: Mapping[str, memoryview], side: int) -> npt.NDArray[np.uint8]:
    """Returns the pictures (4, 4, 3, H, W) RGB."""
    pictures = np.empty((len(CAMERAS), FRAMES_PER_CAMERA, 3, side, side), np.uint8)
    for camera in range(len(CAMERAS)):
        for time in range(FRAMES_PER_CAMERA):
            picture = decoded(record[frame_field(camera, time)], cv2.IMREAD_COLOR_RGB)
            if picture is None or picture.shape != (side, side, 3):
                raise BadData("a picture of a checked record cannot be decoded; build the cache again")
            pictures[camera, time] = picture.transpose(2, 0, 1)
    return pictures


def dummy_pictures(seed: int, number: int, side: int) -> npt.NDArray[np.uint8]:
    """Returns noise in the shape of a sample's pictures, the same for the same sample."""
    stream = np.random.default_rng(int(hash64(seed, number, _DUMMY)))
    return stream.integers(0, 256, (len(CAMERAS), FRAMES_PER_CAMERA, 3, side, side), np.uint8)
