"""Actions that follow from where the car went, for scenes without pedals and wheel: an estimate, and marked as one."""

import math

import numpy as np
import numpy.typing as npt

from lead_trainer.recipes.world.ingest.can_bus import FULL_STEERING
from lead_trainer.recipes.world.ingest.scenes import Float32, Times

WHEELBASE, STEERING_RATIO = 2.588, 15.0  # m, of the Renault Zoe; wheel to road wheel
FULL_PULL, FULL_STOP = 3.0, 6.0  # m/s² at full throttle and full brake
STANDING_STEP, STANDING_SPEED = 0.05, 0.1  # m of a step without a curvature; m/s without a gear


def pose_actions(poses: npt.NDArray[np.float64], timestamps: Times) -> Float32:
    """Returns the actions (T-1, 4) from poses (T, 6), x, y and quaternion w, x, y, z, at `timestamps` (T,)."""
    length = np.linalg.norm(np.diff(poses[:, :2], axis=0), axis=1)
    turn = np.diff(_yaws(poses[:, 2:]))
    turn = (turn + math.pi) % (2.0 * math.pi) - math.pi
    curvature = np.where(length >= STANDING_STEP, turn / np.maximum(length, STANDING_STEP), 0.0)
    speed = length / (1e-6 * np.diff(timestamps))
    middles = (timestamps[1:] + timestamps[:-1]) / 2.0 / 1e6  # absolute seconds, rounded as in the reference values
    pull = np.gradient(speed, middles) if len(speed) > 1 else np.zeros(1)
    columns = (
        np.clip(np.arctan(WHEELBASE * curvature) * STEERING_RATIO / math.radians(FULL_STEERING), -1.0, 1.0),
        np.clip(pull / FULL_PULL, 0.0, 1.0),
        np.clip(-pull / FULL_STOP, 0.0, 1.0),
        speed > STANDING_SPEED,
    )
    return np.stack(columns, axis=1).astype(np.float32)


def _yaws(quaternions: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns headings in radians; quaternions (T, 4) need not be of length 1."""
    w, x, y, z = (quaternions / np.linalg.norm(quaternions, axis=1, keepdims=True)).T
    yaws: npt.NDArray[np.float64] = np.arctan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
    return yaws
