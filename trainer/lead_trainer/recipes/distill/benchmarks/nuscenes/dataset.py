"""nuScenes prediction samples from a cache: raster, history and target of one agent. What else they hold: `modes`."""

from typing import Any

import numpy as np
import numpy.typing as npt

from lead_trainer.data.array_block import unpack_arrays
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.distill.benchmarks.nuscenes.preparation import NuscenesPreparation
from lead_trainer.recipes.distill.benchmarks.targets import target_entries
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.recipe import Sample

# The challenge scores vehicles; each class is reported beside the whole.
CLASSES = ("vehicle.car", "vehicle.truck", "vehicle.bus.rigid", "vehicle.bus.bendy", "vehicle.motorcycle",
           "vehicle.bicycle", "vehicle.trailer", "vehicle.construction", "vehicle.emergency.police",
           "vehicle.emergency.ambulance", "other")  # fmt: skip


class NuscenesSamples:
    """The samples of one split; index is the position among the collection's rows."""

    def __init__(self, config: DistillConfig, cache: Any, split: str) -> None:
        """`cache` is a `data.cache_reader.CacheReader`; raises BadConfig where it was built with other values."""
        if cache is None:
            raise BadConfig("benchmark nuscenes trains on a dataset cache; name one in datasets, or nuscenes_root")
        for key, value in NuscenesPreparation().config_keys(config.model_dump()).items():
            if cache.config.get(key) != value:
                raise BadConfig(f"{key}: found {value!r}, the cache has {cache.config.get(key)!r}; make them equal")
        self._cache = cache
        self._rows = cache.rows(split)
        self._metas = cache.metas()

    def __len__(self) -> int:
        """Number of agents."""
        return len(self._rows.sample)

    def epoch_draw(self, epoch: int) -> npt.NDArray[np.int64]:
        """Returns every agent once."""
        return np.arange(len(self), dtype=np.int64)

    def name(self, index: int) -> str:
        """Returns scene, instance and keyframe, for messages."""
        return f"{self._rows.route[index]} keyframe {self._rows.frame[index]}"

    def load(self, index: int, epoch: int) -> Sample:
        """Returns one sample; nothing in it is random.

        `raster` is (3, H, W) uint8; `history` (5, 4) float32 is x, y, sin and cos of the yaw at -2.0 … 0 s, zeros where
        the agent was not seen, which `history_seen` (5,) tells.
        """
        record = self._cache.fields(int(self._rows.sample[index]))
        arrays = unpack_arrays(record["arrays"], compressed=True)
        picture = unpack_arrays(record["image"], compressed=True)["raster"]
        meta = self._metas.row(str(self._rows.route[index]), int(self._rows.frame[index]))
        past = arrays["history"]
        poses = np.stack([past[:, 0], past[:, 1], np.sin(past[:, 2]), np.cos(past[:, 2])], axis=1)
        known = meta["category"] if meta["category"] in CLASSES else "other"
        return {
            **target_entries(arrays, epoch),
            "raster": np.ascontiguousarray(picture.transpose(2, 0, 1)),
            "history": np.nan_to_num(poses).astype(np.float32),
            "history_seen": ~np.isnan(poses).any(axis=1),
            "category": np.int64(CLASSES.index(known)),
            "instance": meta["instance"],
            "sample": meta["sample"],
            "location": meta["location"],
        }
