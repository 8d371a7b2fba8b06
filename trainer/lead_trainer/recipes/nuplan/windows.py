"""Windows of a scene: stretches of `window_s` seconds, `stride_s` apart, that begin at a frame and end in the scene."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


def window_starts(timestamps: Int64 | Sequence[int], window_s: float, stride_s: float) -> Int64:
    """Returns the numbers of the frames that windows of one scene begin with; empty where it is too short.

    A frame lasts until the next one, the last one as long as the median of the others; times may be off by half of it.
    """
    times = np.asarray(timestamps, np.int64)
    if len(times) < 2:
        return np.empty(0, np.int64)
    period = float(np.median(np.diff(times)))
    latest = times[-1] - times[0] + 1.5 * period - 1e6 * window_s  # of a window's begin, us after the first frame
    if latest < 0:
        return np.empty(0, np.int64)
    wanted = times[0] + 1e6 * stride_s * np.arange(int(latest // (1e6 * stride_s)) + 1)
    found = np.unique(np.searchsorted(times, wanted - 0.5 * period))
    return np.asarray(found[times[found] - times[0] <= latest], np.int64)
