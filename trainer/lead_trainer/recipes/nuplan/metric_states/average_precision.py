"""Average precision by the distance of centres, and the errors of what was found; nuScenes' definition.

A guess, the surest first, is right where the nearest unused truth of its class and sample is nearer than a threshold.
Precision is read at 101 recalls; recalls and precisions below 0.1 count nothing. Definition: nuscenes-devkit,
`eval/detection/algo.py`. Everything in float64.

Rows of truth and guesses: x, y, length, width, yaw, vx, vy in one frame, metres, radians and metres per second.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

THRESHOLDS_M = (0.5, 1.0, 2.0, 4.0)
ERRORS_AT_M = 2.0
ERRORS = ("trans", "scale", "orient", "vel")  # m, 1 - IoU of aligned boxes, rad, m/s
_RECALLS = np.linspace(0, 1, 101)
_FIRST, _LEAST_PRECISION = 11, 0.1  # of the recalls, the first that counts


@dataclass(frozen=True)
class Boxes:
    """The boxes of one class in all samples, in an order that no number of ranks changes."""

    sample: Int64  # (N,)
    rows: Float64  # (N, 7)
    score: Float64  # (N,); of truth unused


@dataclass(frozen=True)
class Precision:
    """What was found of one class."""

    by_threshold: Mapping[float, float]
    errors: Mapping[str, float]  # 1 where no recall counts
    truths: int

    @property
    def mean(self) -> float:
        """The mean over thresholds."""
        return float(np.mean(list(self.by_threshold.values())))


def precision_of(truth: Boxes, guess: Boxes) -> Precision:
    """Returns average precisions and errors of one class."""
    order = np.argsort(-guess.score, kind="stable")
    guess = Boxes(guess.sample[order], guess.rows[order], guess.score[order])
    curves = {threshold: _curve(truth, guess, threshold) for threshold in THRESHOLDS_M}
    return Precision(
        {threshold: curve.precision for threshold, curve in curves.items()},
        curves[ERRORS_AT_M].errors,
        len(truth.sample),
    )


@dataclass(frozen=True)
class _Curve:
    precision: float
    errors: Mapping[str, float]


def _curve(truth: Boxes, guess: Boxes, threshold: float) -> _Curve:
    matched = _matches(truth, guess, threshold)
    right = matched >= 0
    if not right.any():
        return _Curve(0.0, dict.fromkeys(ERRORS, 1.0))
    hits = np.cumsum(right)
    recall, precision = hits / len(truth.sample), hits / np.arange(1, len(right) + 1)
    read = np.interp(_RECALLS, recall, precision, right=0)[_FIRST:]
    average = float(np.mean(np.clip(read - _LEAST_PRECISION, 0, None))) / (1 - _LEAST_PRECISION)
    confidence = np.interp(_RECALLS, recall, guess.score, right=0)
    errors = _errors(truth.rows[matched[right]], guess.rows[right])
    return _Curve(average, _mean_errors(errors, confidence, guess.score[right]))


def _matches(truth: Boxes, guess: Boxes, threshold: float) -> Int64:
    """Returns the row of the truth that each guess found, -1 for none; guesses are the surest first."""
    found = np.full(len(guess.sample), -1, np.int64)
    rows = {int(sample): np.flatnonzero(truth.sample == sample) for sample in np.unique(truth.sample)}
    free = {sample: np.ones(len(own), bool) for sample, own in rows.items()}
    for number, sample in enumerate(guess.sample.tolist()):
        if sample not in rows or not free[sample].any():
            continue
        own = rows[sample]
        distance = np.linalg.norm(truth.rows[own, :2] - guess.rows[number, :2], axis=1)
        nearest = int(np.where(free[sample], distance, np.inf).argmin())
        if distance[nearest] < threshold:
            found[number], free[sample][nearest] = own[nearest], False
    return found


def _errors(truth: Float64, guess: Float64) -> dict[str, Float64]:
    sizes, found = truth[:, 2:4], guess[:, 2:4]
    both = np.minimum(sizes, found).prod(1)
    turned = np.remainder(guess[:, 4] - truth[:, 4] + np.pi, 2 * np.pi) - np.pi
    return {
        "trans": np.linalg.norm(truth[:, :2] - guess[:, :2], axis=1),
        "scale": 1 - both / (sizes.prod(1) + found.prod(1) - both),
        "orient": np.abs(turned),
        "vel": np.linalg.norm(truth[:, 5:7] - guess[:, 5:7], axis=1),
    }


def _mean_errors(errors: Mapping[str, Float64], confidence: Float64, scores: Float64) -> dict[str, float]:
    """Returns the mean over recalls of each error's running mean; the recalls are known by their confidence."""
    reached = np.flatnonzero(confidence)
    last = int(reached[-1]) if len(reached) else 0
    if last < _FIRST:
        return dict.fromkeys(errors, 1.0)
    found = {}
    for name, values in errors.items():
        running = np.cumsum(values) / np.arange(1, len(values) + 1)
        read = np.interp(confidence[::-1], scores[::-1], running[::-1])[::-1]
        found[name] = float(np.mean(read[_FIRST : last + 1]))
    return found
