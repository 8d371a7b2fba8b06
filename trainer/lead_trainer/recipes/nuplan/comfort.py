"""How comfortable a drive is: largest accelerations and jerks, plain, and as nuPlan's metrics smooth them.

A log is (N, 8) at a fixed rate: time (s), x, y (m), heading (rad), velocity and acceleration in the vehicle's frame
(vx, vy in m/s, ax, ay in m/s²). Definition of the smoothed ones: nuplan-devkit,
`planning/metrics/utils/state_extractors.py`.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from scipy.signal import savgol_filter

Float64 = npt.NDArray[np.float64]

ACCELERATION_WINDOW, JERK_WINDOW, YAW_WINDOW = 8, 15, 5  # samples


def plain_comfort(log: Float64) -> Mapping[str, float]:
    """Returns the largest absolute acceleration, along the vehicle too, and jerk along it by finite differences."""
    time, ahead, left = log[:, 0], log[:, 6], log[:, 7]
    return {
        "max_abs_accel": float(np.hypot(ahead, left).max()),
        "max_abs_lon_accel": float(np.abs(ahead).max()),
        "max_abs_lon_jerk_finite_difference": float(np.abs(np.diff(ahead) / np.diff(time)).max()),
    }


def smoothed_comfort(log: Float64) -> Mapping[str, float | list[float]]:
    """Returns nuPlan's figures: accelerations, jerks, yaw rate and yaw acceleration through a Savitzky-Golay filter."""
    time, heading = log[:, 0], np.unwrap(log[:, 3])
    ahead, left, whole = (_smoothed(value) for value in (log[:, 6], log[:, 7], np.hypot(log[:, 6], log[:, 7])))
    rates = {
        "lat_accel_abs_max": left,
        "lon_jerk_abs_max": _derivative(ahead, time, JERK_WINDOW),
        "jerk_magnitude_abs_max": _derivative(whole, time, JERK_WINDOW),
        "yaw_rate_abs_max": _derivative(heading, time, YAW_WINDOW),
        "yaw_accel_abs_max": _derivative(heading, time, YAW_WINDOW, order=2, degree=3),
    }
    most = {name: float(np.abs(np.round(values, 8)).max()) for name, values in rates.items()}
    magnitude = float(np.abs(whole).max())
    return {"lon_accel_min_max": [float(ahead.min()), float(ahead.max())], "accel_magnitude_max": magnitude, **most}


def _smoothed(values: Float64) -> Float64:
    found: Float64 = savgol_filter(values, min(ACCELERATION_WINDOW, len(values)), polyorder=2)
    return np.round(found, 8)


def _derivative(values: Float64, time: Float64, window: int, *, order: int = 1, degree: int = 2) -> Float64:
    step = float(np.diff(time).mean())
    found: Float64 = savgol_filter(values, min(window, len(values)), polyorder=degree, deriv=order, delta=step)
    return found
