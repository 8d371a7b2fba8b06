"""The entries of a sample that both benchmarks share, made of the record's `future`, `kinematics` and `pose`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lead_trainer.recipes.recipe import Sample

PLAIN_STATS = ((0.0, 0.0), (1.0, 0.02))  # mean and spread of (m/s², 1/m): benchmarks give positions, no actions


def target_entries(arrays: Mapping[str, npt.NDArray[Any]], epoch: int) -> Sample:
    """Returns the entries that every forecasting benchmark shares; what is not known is 0 and not valid."""
    future, steps = arrays["future"], len(arrays["future"])
    return {
        "target_xy": np.nan_to_num(future[:, :2]).astype(np.float32),
        "target_yaw": np.nan_to_num(future[:, 2]).astype(np.float32),
        "target_valid": ~np.isnan(future).any(axis=1),
        "speed": np.float32(arrays["kinematics"][0]),
        "kinematics": arrays["kinematics"].astype(np.float64),
        "pose": arrays["pose"].astype(np.float64),
        "actions": np.zeros((steps, 2), np.float32),
        "action_stats": np.array(PLAIN_STATS, np.float32),
        "epoch": np.int64(epoch),
    }
