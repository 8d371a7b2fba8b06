"""Mean and spread of the labels' actions: the units of a unicycle student's outputs.

Robust, because a student's output passes through a tanh at its limits: a few steps of cars that stand, whose curvature
is turn over (almost) no distance, must not push every other step into saturation.
"""

import numpy as np
import numpy.typing as npt

from lead_trainer.recipes.distill.config import MAX_ACCELERATION, MAX_CURVATURE
from lead_trainer.recipes.distill.ingest.label_files import DT_S

SMALLEST_SPREAD = (0.05, 0.001)  # m/s², 1/m: labels that all drive straight on must not divide by zero
MOVING_MPS = 0.5  # a slower step says nothing of the curvatures that people drive
_TAIL = 0.01  # share of the values at each end that counts as much as the value beside it

Floats = npt.NDArray[np.float64]


def robust_stats(actions: Floats, speed: Floats) -> npt.NDArray[np.float32]:
    """Returns mean and spread, (2, 2), of actions (N, T, 2) in m/s² and 1/m that begin at speeds (N,) in m/s.

    Curvatures count where the car moves. Values beyond a student's limits count as the limits, and the tails as the
    quantiles where they begin.
    """
    before = speed[:, None] + DT_S * (np.cumsum(actions[..., 0], 1) - actions[..., 0])
    moving = before + 0.5 * DT_S * actions[..., 0] >= MOVING_MPS
    accelerations = _winsorised(actions[..., 0].ravel(), MAX_ACCELERATION)
    curvatures = _winsorised(actions[..., 1][moving], MAX_CURVATURE)
    found = (accelerations, curvatures)
    means = [values.mean() for values in found]
    spreads = [max(float(values.std()), least) for values, least in zip(found, SMALLEST_SPREAD, strict=True)]
    return np.array([means, spreads], np.float32)


def _winsorised(values: Floats, limit: float) -> Floats:
    if not len(values):
        return np.zeros(1)
    within = np.clip(values, -limit, limit)
    return np.clip(within, *np.quantile(within, [_TAIL, 1.0 - _TAIL]))
