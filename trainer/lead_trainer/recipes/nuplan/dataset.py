"""Frames of a split as samples: the first frame of every window of a scene, from a cache's records.

A sample is a pure function of (index, epoch, config.seed) and the cache; several threads may call `load` at once. What
it holds is `SAMPLE`, in the vehicle's frame of the sweep; cells are [ahead, left].
"""

import threading
from collections.abc import Mapping

import cv2
import numpy as np
import structlog

from lead_trainer.contract.samples import Cache, Caches, Indices, Sample
from lead_trainer.data.in_shards import RowsInShards
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.nuplan.augment import Draw, draw, mirrored, random_of, thinned
from lead_trainer.recipes.nuplan.bundle_record import from_record, rig_arrays
from lead_trainer.recipes.nuplan.data_keys import ReadsSamples
from lead_trainer.recipes.nuplan.prepare_keys import NuplanKeys
from lead_trainer.recipes.nuplan.rig_pictures import UNCHANGED, RigPictures
from lead_trainer.recipes.nuplan.sensor_bundle import Array, SensorBundle
from lead_trainer.recipes.nuplan.windows import window_starts
from lead_trainer.recipes.prepare_keys import refuse_other_preparation

log = structlog.get_logger(__name__)

# What a sample holds: C cameras of H x W pixels, A agents, P points, T steps of a way, G cells a side of the grid.
SAMPLE: Mapping[str, str] = {
    "images": "(C, H, W, 3) uint8, RGB, without distortion; decoded where a batch is made, or by numpy",
    "intrinsics": "(C, 3, 3) float32, pixels",
    "camera_to_vehicle": "(C, 4, 4) float32, at the picture's time",
    "picture_to_sweep": "(C, 4, 4) float32, vehicle's frame at the picture's time to the sweep's",
    "calibration": "text, hash of lenses, mounts and picture size",
    "points": "(P, 5) float32: x, y, z (m), intensity [0, 1], ring; one row of zeros where there is none",
    "point_count": "int64, points of `points`",
    "boxes": "(A, 7) float32: x, y, length, width (m), yaw (rad), vx, vy (m/s); one row of zeros where there is none",
    "box_class": "(A,) int64, of data_keys.CLASSES",
    "agent_valid": "(A,) bool, whether the row is a box",
    "futures": "(A, T, 4) float32: x, y (m), yaw (rad), speed (m/s); 0 where not valid",
    "future_valid": "(A, T) bool",
    "ego_state": "(4,) float32: vx, vy (m/s), ax, ay (m/s²)",
    "ego_future": "(T, 4) float32, like futures",
    "ego_future_valid": "(T,) bool",
    "layers": "(5, G, G) uint8, 0 or 1, by data_keys.LAYERS",
    "occupied": "(G, G) uint8, 0 or 1",
    "known": "(G, G) uint8, 0 or 1: what the lidar has seen",
    "labelled": "(4,) bool, by data_keys.TASKS",
    "timestamp": "int64, us",
    "log": "text",
    "token": "text, of the sweep",
}


class FrameSamples(RowsInShards):
    """The frames of one split that windows begin with; those of training are augmented."""

    def __init__(self, config: ReadsSamples, cache: Cache, split: str, *, training: bool) -> None:
        """Reads rows and metas; raises BadConfig for a cache of other keys, and where no scene is long enough."""
        refuse_other_preparation(_named(NuplanKeys.of(config.data)), _named(NuplanKeys.parse(cache.config["data"])))
        cv2.setNumThreads(1)  # the loader's threads share the cores already
        self._config, self._cache, self._training = config, cache, training
        self._rows, self._metas = cache.rows(split), cache.metas()
        self._first = self._starts(split)
        self._rigs: dict[str, Mapping[str, Array]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Number of windows."""
        return len(self._first)

    def epoch_draw(self, epoch: int) -> Indices:
        """Returns every window once."""
        return np.arange(len(self), dtype=np.int64)

    def name(self, index: int) -> str:
        """Returns scene and sweep of a sample, for messages."""
        row = int(self._first[index])
        return f"{self._rows.route[row]} sweep {self._meta(row)['token']}"

    def shards_of(self, indices: Indices) -> Indices:
        """Returns the shard that each sample lies in."""
        return super().shards_of(self._first[indices])

    def group_lengths(self) -> Indices:
        """Returns how many agents each sample has: batches are made of samples of like length."""
        return self._column("agents")[self._first]

    def load(self, index: int, epoch: int) -> Sample:
        """Returns one sample; raises BadData where a record is not of the cache's form."""
        bundle, keys = self._bundle(int(self._first[index])), self._config.data.augmentation
        if not self._training:
            return whole_sample(bundle)
        random = random_of(self._config.seed, epoch, index)
        chosen = draw(keys, random)
        sample = whole_sample(bundle, chosen)
        if sample["point_count"]:
            sample |= with_points(thinned(sample["points"], keys, random))
        return mirrored(sample) if chosen.flip else sample

    def _starts(self, split: str) -> Indices:
        """Returns the rows that windows begin with."""
        keys = self._config.data
        codes = np.asarray(self._rows.route.codes, np.int64)
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        times, found, short = self._column("timestamp"), [], 0
        for start, end in zip(starts, np.append(starts, len(codes))[1:], strict=True):
            windows = window_starts(times[start:end], keys.window_s, keys.stride_s)
            found.append(start + windows)
            short += not len(windows)
        if short:
            log.warning("scenes are shorter than a window and are left out", scenes=short, split=split,
                        window_s=keys.window_s)  # fmt: skip
        rows = np.concatenate([*found, np.empty(0, np.int64)]).astype(np.int64)
        if not len(rows):
            raise BadConfig(
                f"data.window_s: found {keys.window_s}, but none of the {len(starts)} scenes of {split} is so "
                "long; set a smaller data.window_s, or add logs: each city needs two for some of them to be in val"
            )
        return rows

    def _column(self, name: str) -> Indices:
        """Returns a column of whole numbers of the metas, for every row of the split."""
        codes = np.asarray(self._rows.route.codes, np.int64)
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        values = [value for start in starts for value in self._metas.values(name, self._rows.route[int(start)])]
        if len(values) != len(codes):
            raise BadData(f"the cache has {len(values)} metas for {len(codes)} rows; build it again")
        return np.array(values, np.int64)

    def _meta(self, row: int) -> dict[str, object]:
        found: dict[str, object] = self._metas.row(self._rows.route[row], int(self._rows.frame[row]))
        return found

    def _bundle(self, row: int) -> SensorBundle:
        meta = self._meta(row)
        text = str(meta["rig"])
        with self._lock:
            if text not in self._rigs:
                self._rigs[text] = rig_arrays(text)
            rig = self._rigs[text]
        return from_record(self._cache.fields(int(self._rows.sample[row])), meta, rig)


def whole_sample(bundle: SensorBundle, chosen: Draw = UNCHANGED) -> Sample:
    """Returns the sample of a bundle, its colours changed as drawn; raises BadData for a picture of another size."""
    arrays = bundle.arrays()
    names = ("intrinsics", "camera_to_vehicle", "picture_to_sweep", "ego_state", "ego_future", "ego_future_valid")
    sample = {
        "images": RigPictures.of(bundle.channels, bundle.images, bundle.image_size, chosen),
        **{name: arrays[name] for name in (*names, "layers", "occupied", "known", "labelled")},
        "calibration": bundle.calibration,
        **with_points(arrays["points"]),
        **_with_agents(arrays),
        "timestamp": np.int64(bundle.timestamp),
        "log": bundle.log,
        "token": bundle.token,
    }
    return {name: sample[name] for name in SAMPLE}


def with_points(points: Array) -> Sample:
    """Returns points and their number, at least one row."""
    count = np.int64(len(points))
    return {"points": points if count else np.zeros((1, points.shape[1]), np.float32), "point_count": count}


def _with_agents(arrays: Mapping[str, Array]) -> Sample:
    """Returns boxes and ways, at least one row."""
    found = {name: arrays[name] for name in ("boxes", "box_class", "futures", "future_valid")}
    count = len(found["boxes"])
    if not count:
        found = {name: np.zeros((1, *array.shape[1:]), array.dtype) for name, array in found.items()}
    return {**found, "agent_valid": np.arange(max(count, 1)) < count}


def training_samples(config: ReadsSamples, caches: Caches) -> FrameSamples:
    """Returns the samples of training; raises BadConfig unless there is one cache."""
    return FrameSamples(config, _only(caches), "train", training=True)


def validation_samples(config: ReadsSamples, caches: Caches) -> FrameSamples:
    """Returns the samples of validation, unchanged."""
    return FrameSamples(config, _only(caches), "val", training=False)


def _only(caches: Caches) -> Cache:
    if len(caches) != 1:
        raise BadConfig(
            f"datasets: found {', '.join(caches) or 'none'}, but recipe nuplan trains on one; name one cache"
        )
    return next(iter(caches.values()))


def _named(keys: NuplanKeys) -> dict[str, object]:
    return {f"data.{key}": value for key, value in keys.as_mapping().items()}
