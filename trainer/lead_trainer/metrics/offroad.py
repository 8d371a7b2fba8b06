"""OffRoadRate of the nuScenes prediction challenge: the share of modes that leave the drivable area.

A mode is made 200 points long by a cubic spline and looked up in a mask of 10 pixels a metre; outside of the mask is
off the road. Definition: nuscenes-devkit, `eval/prediction/metrics.py`, OffRoadRate.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import interpolate

PIXELS_PER_METRE = 10
SPLINE_POINTS = 200
SPLINE_SMOOTHING = 0.1  # m², as the challenge fits it
_CUBIC = 3

# Rows and columns of pixels -> whether each is drivable; a pixel outside of the map is not.
DrivableAt = Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], npt.NDArray[np.bool_]]


def off_road_rate(modes_KT2: npt.NDArray[np.float64], drivable_at: DrivableAt) -> float:
    """Returns the share of K modes that are not wholly inside; positions in the map's frame, metres."""
    return sum(not _is_inside(mode, drivable_at) for mode in modes_KT2) / len(modes_KT2)


def in_mask(mask: npt.NDArray[np.uint8]) -> DrivableAt:
    """Returns the look-up in a mask whose pixel (0, 0) lies at the origin, rows along y and columns along x."""

    def drivable(rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        height, width = mask.shape
        inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
        result = np.zeros(rows.shape, np.bool_)
        result[inside] = mask[rows[inside], columns[inside]] > 0
        return result

    return drivable


def _is_inside(mode_T2: npt.NDArray[np.float64], drivable_at: DrivableAt) -> bool:
    path = _splined(mode_T2)
    # Truncated towards zero, as the challenge does; a coordinate between -0.1 and 0 m falls into the first pixel.
    pixels = (path * PIXELS_PER_METRE).astype(np.int64)
    return bool(drivable_at(pixels[:, 1], pixels[:, 0]).all())


def _splined(mode_T2: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns points along a mode; repeated points are dropped, and three or fewer are taken as they are."""
    points = np.array(list(dict.fromkeys(map(tuple, mode_T2.tolist()))), np.float64)
    if len(points) <= _CUBIC:
        return points
    knots, _ = interpolate.splprep([points[:, 0], points[:, 1]], k=_CUBIC, s=SPLINE_SMOOTHING)
    return np.stack(interpolate.splev(np.linspace(0, 1, SPLINE_POINTS), knots), axis=1)
