"""Windows of a split as samples: pictures and actions of one scene, from a cache's records.

A sample is a pure function of (index, epoch, config.seed) and the cache; several threads may call `load` at once.

    images       (T, H, W, 3) uint8, RGB, decoded where a batch is
    actions      (T-1, 4) float32: steering [-1, 1], throttle [0, 1], brake [0, 1], gear 0 | 1
    scene        text, the scene's name
    first_frame  int64, the number of the first picture in its scene
"""

import cv2
import numpy as np
import structlog

from lead_trainer.contract.samples import Cache, Caches, Indices, Sample
from lead_trainer.data.in_shards import RowsInShards
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.prepare_keys import refuse_other_preparation
from lead_trainer.recipes.world.augment import draw, steered
from lead_trainer.recipes.world.curriculum import by_difficulty, drawn, phase_of
from lead_trainer.recipes.world.data_keys import ReadsWindows
from lead_trainer.recipes.world.ingest.scenes import ACTION_DIM, Float32
from lead_trainer.recipes.world.prepare_keys import WorldKeys
from lead_trainer.recipes.world.window_pictures import WindowPictures
from lead_trainer.recipes.world.windows import skipped_actions, windows_of

log = structlog.get_logger(__name__)


class WindowSamples(RowsInShards):
    """The windows of one split; those of training are augmented and follow the curriculum."""

    def __init__(self, config: ReadsWindows, cache: Cache, split: str, *, training: bool) -> None:
        """Reads rows and metas; raises BadConfig for a cache of other keys, and where no scene is long enough."""
        refuse_other_preparation(_named(WorldKeys.of(config.data)), _named(WorldKeys.parse(cache.config["data"])))
        cv2.setNumThreads(1)  # the loader's threads share the cores already
        self._config, self._cache, self._keys = config, cache, config.data
        self._rows, self._metas, self._training = cache.rows(split), cache.metas(), training
        self._windows = windows_of(self._rows, self._keys.sequence_length, self._keys.frame_skip)
        short = [verdict.route for verdict in self._windows.verdicts if not verdict.kept]
        if short:
            log.warning("scenes are too short for a window and are left out", scenes=len(short), first=short[0],
                        split=split, sequence_length=self._keys.sequence_length)  # fmt: skip
        scenes = self._windows.scenes
        # Between a scene's frames; the metas of its last one have none.
        self._scene_actions = {
            scene: np.array(self._metas.values("action", scene)[:-1], np.float32).reshape(-1, ACTION_DIM)
            for scene in scenes
        }
        difficulty = np.array([float(self._metas.row(scene, 0)["difficulty"]) for scene in scenes])
        self._order = by_difficulty(difficulty[self._windows.scene])

    def __len__(self) -> int:
        """Number of windows."""
        return len(self._windows.first)

    def epoch_draw(self, epoch: int) -> Indices:
        """Returns every window once, or the third of the curriculum's phase."""
        return drawn(self._order, phase_of(self._config.curriculum, epoch) if self._training else None)

    def name(self, index: int) -> str:
        """Returns scene and first frame of a window, for messages."""
        return f"{self._scene(index)} frame {self._rows.frame[self._windows.first[index]]}"

    def shards_of(self, indices: Indices) -> Indices:
        """Returns the shard that each window lies in, with its whole scene."""
        return super().shards_of(self._windows.first[indices])

    def load(self, index: int, epoch: int) -> Sample:
        """Returns one window; raises BadData where a record is not of the cache's size."""
        length, skip = self._keys.sequence_length, self._keys.frame_skip
        rows = self._windows.rows(index, length, skip)
        actions = skipped_actions(self._actions(index, (length - 1) * skip), skip)
        keys = self._keys.augmentation if self._training else None
        chosen = draw(keys, self._config.seed, epoch, index) if keys else None
        jpegs = [self._cache.fields(int(self._rows.sample[row]))["image"] for row in rows]
        return {
            "images": WindowPictures.of(jpegs, self._keys.image_size, chosen),
            "actions": steered(actions, chosen) if chosen else actions,
            "scene": self._scene(index).partition("/")[2],
            "first_frame": np.int64(self._rows.frame[rows[0]]),
        }

    def _scene(self, index: int) -> str:
        return self._windows.scenes[int(self._windows.scene[index])]

    def _actions(self, index: int, count: int) -> Float32:
        first = int(self._rows.frame[self._windows.first[index]])
        return self._scene_actions[self._scene(index)][first : first + count]


def training_samples(config: ReadsWindows, caches: Caches) -> WindowSamples:
    """Returns the windows of training; raises BadConfig unless there is one cache."""
    return WindowSamples(config, _only(caches), "train", training=True)


def validation_samples(config: ReadsWindows, caches: Caches) -> WindowSamples:
    """Returns the windows of validation: all of them, unchanged."""
    return WindowSamples(config, _only(caches), "val", training=False)


def _only(caches: Caches) -> Cache:
    if len(caches) != 1:
        raise BadConfig(
            f"datasets: found {', '.join(caches) or 'none'}, but recipe world trains on one; name one cache"
        )
    return next(iter(caches.values()))


def _named(keys: WorldKeys) -> dict[str, object]:
    return {f"data.{key}": value for key, value in keys.as_mapping().items()}
