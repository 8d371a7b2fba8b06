"""The drivable area of a scenario's map as a mask, drawn and asked as `av2` does it (`map/map_api.py`): 0.1 m a pixel.

`av2` draws with Pillow, we with OpenCV, so a pixel on an outline may be another's.
The challenge ranks nothing by it; Argoverse calls 1 - OffRoadRate drivable area compliance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.contract.raw_data import SourceTree
from lead_trainer.metrics.offroad import PIXELS_PER_METRE, in_mask
from lead_trainer.recipes.distill.benchmarks.argoverse2.preparation import map_of
from lead_trainer.recipes.distill.benchmarks.argoverse2.vector_map import LINE_TYPES, Points

MAPS_KEPT = 256  # at least those of a batch, which the model and every baseline ask one after another


@dataclass(frozen=True)
class DrivableArea:
    """The union of a map's areas."""

    mask: npt.NDArray[np.uint8]  # (H, W), rows along y
    corner: npt.NDArray[np.float64]  # (2,) where pixel (0, 0) begins, m in the city's frame

    def off_road_rate(self, modes_KT2: npt.NDArray[np.float64]) -> float:
        """Returns the share of modes with a point outside; ten points a second need no spline between them."""
        pixels = ((modes_KT2 - self.corner) * PIXELS_PER_METRE).astype(np.int64)  # truncated, not rounded
        return float((~in_mask(self.mask)(pixels[..., 1], pixels[..., 0]).all(axis=-1)).mean())


def drawn(outlines: Sequence[Points]) -> DrivableArea:
    """Returns the mask of closed outlines, as large as they reach and a metre more; without any there is no road."""
    if not outlines:
        return DrivableArea(np.zeros((0, 0), np.uint8), np.zeros(2))
    everything = np.concatenate(outlines)
    low, high = np.floor(everything.min(axis=0)), np.ceil(everything.max(axis=0))
    width, height = ((high - low + 1) * PIXELS_PER_METRE).astype(int)
    mask = np.zeros((height, width), np.uint8)
    for outline in outlines:
        cv2.fillPoly(mask, [np.rint((outline - low) * PIXELS_PER_METRE).astype(np.int32)], 1)
    return DrivableArea(mask, low)


def drivable_area(tree: SourceTree, route: str) -> DrivableArea:
    """Returns the drivable area around a route's track; raises BadData naming a map that cannot be read."""
    area: DrivableArea = _read_once(tree, route.rpartition("/")[0])  # type: ignore[arg-type]  # hashed by identity
    return area


@lru_cache(maxsize=MAPS_KEPT)
def _read_once(tree: Any, folder: str) -> DrivableArea:
    edge = LINE_TYPES.index("drivable_edge")
    return drawn([line.points for line in map_of(tree, folder) if line.kind == edge])
