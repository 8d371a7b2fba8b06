"""nuScenes prediction samples from a cache: raster, history and target of one agent. What else they hold: `modes`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lead_trainer.contract.samples import Sample
from lead_trainer.data.array_block import unpack_arrays
from lead_trainer.recipes.distill.benchmarks.samples import BenchmarkSamples

# The challenge scores vehicles; each class is reported beside the whole.
CLASSES = ("vehicle.car", "vehicle.truck", "vehicle.bus.rigid", "vehicle.bus.bendy", "vehicle.motorcycle",
           "vehicle.bicycle", "vehicle.trailer", "vehicle.construction", "vehicle.emergency.police",
           "vehicle.emergency.ambulance", "other")  # fmt: skip


class NuscenesSamples(BenchmarkSamples):
    """The agents of one split."""

    def entries(
        self, record: Mapping[str, memoryview], arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any]
    ) -> Sample:
        """Returns raster, past and the names of instance and sample.

        `raster` is (3, H, W) uint8; `history` (5, 4) float32 is x, y, sin and cos of the yaw at -2.0 … 0 s, zeros where
        the agent was not seen, as marked in `history_seen` (5,).
        """
        picture = unpack_arrays(record["image"], compressed=True)["raster"]
        past = arrays["history"]
        poses = np.stack([past[:, 0], past[:, 1], np.sin(past[:, 2]), np.cos(past[:, 2])], axis=1)
        known = meta["category"] if meta["category"] in CLASSES else "other"
        return {
            "raster": np.ascontiguousarray(picture.transpose(2, 0, 1)),
            "history": np.nan_to_num(poses).astype(np.float32),
            "history_seen": ~np.isnan(poses).any(axis=1),
            "category": np.int64(CLASSES.index(known)),
            "instance": meta["instance"],
            "sample": meta["sample"],
            "location": meta["location"],
        }
