"""CARLA's label classes where real data is trained beside them: what no real camera can distinguish becomes one class.

LEAD's SIM2REAL_* tables (lead/common/constants.py); used when a sample is loaded, except in leaderboard mode.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from lead_trainer.recipes.lead.targets.label_classes import BoxColumn


def _table(classes: int, changes: dict[int, int]) -> npt.NDArray[np.uint8]:
    table = np.arange(classes, dtype=np.uint8)
    for old, new in changes.items():
        table[old] = new
    return table


SIM2REAL_SEMANTIC = _table(10, {7: 1})  # special vehicle -> vehicle
SIM2REAL_OCCUPANCY = _table(10, {3: 0, 4: 1, 5: 1, 9: 8})  # obstacle -> none; parking, special -> vehicle; light
SIM2REAL_BEV = _table(13, {3: 0, 7: 4, 12: 11})  # stop sign -> none; parking -> vehicle; red not normal -> red normal
SIM2REAL_BOX = _table(8, {4: 0, 6: 0})  # special, parking -> vehicle


def sim2real_boxes(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns box rows (N, 9) with the merged classes."""
    merged = np.array(rows)
    merged[:, BoxColumn.CLASS] = SIM2REAL_BOX[merged[:, BoxColumn.CLASS].astype(np.int64)]
    return merged
