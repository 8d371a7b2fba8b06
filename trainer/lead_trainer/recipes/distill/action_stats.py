"""Mean and spread of the labels' actions: the units of a unicycle student's outputs.

Counted once, over every usable clip of the training split, when a cache is built; its manifest states them.

Robust, because a student's output passes through a tanh at its limits: a few steps of cars that stand, whose curvature
is turn over (almost) no distance, must not push every other step into saturation.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from lead_trainer.contract.step import Facts
from lead_trainer.errors import BadData
from lead_trainer.recipes.distill.config import MAX_ACCELERATION, MAX_CURVATURE
from lead_trainer.recipes.distill.ingest.label_files import DT_S

SMALLEST_SPREAD = (0.05, 0.001)  # m/s², 1/m: labels that all drive straight on must not divide by zero
MOVING_MPS = 0.5  # slower steps do not show the curvatures that people drive
_TAIL = 0.01  # share of the values at each end that counts as much as the value beside it
# m/s², 1/m: a value is counted as the nearest multiple within a student's limits.
_GRAIN = {"acceleration": (0.01, MAX_ACCELERATION), "curvature": (0.00025, MAX_CURVATURE)}
MEAN, SPREAD = "action_mean", "action_spread"  # as a cache's manifest calls them
STATS = "action_stats"  # rows mean and spread, as a run's facts and the student's buffer call them
PLAIN_STATS = ((0.0, 0.0), (1.0, 0.02))  # until those of the labels are known

Floats = npt.NDArray[np.float64]
Counts = Mapping[str, npt.NDArray[np.int64]]


def action_counts(actions: Floats, speed: Floats) -> dict[str, npt.NDArray[np.int64]]:
    """Returns how often each action occurs in (N, T, 2), m/s² and 1/m, of clips that begin at speeds (N,) in m/s.

    Curvatures count where the car moves. Values beyond a student's limits count as the limits.
    """
    before = speed[:, None] + DT_S * (np.cumsum(actions[..., 0], 1) - actions[..., 0])
    moving = before + 0.5 * DT_S * actions[..., 0] >= MOVING_MPS
    values = {"acceleration": actions[..., 0].ravel(), "curvature": actions[..., 1][moving]}
    return {name: _histogram(values[name], *grain) for name, grain in _GRAIN.items()}


def _histogram(values: Floats, grain: float, limit: float) -> npt.NDArray[np.int64]:
    half = round(limit / grain)
    steps = np.rint(np.clip(values, -limit, limit) / grain).astype(np.int64)
    return np.bincount(steps + half, minlength=2 * half + 1)


def action_facts(counts: Counts) -> dict[str, list[float]]:
    """Returns mean and spread of counted actions as a manifest states them; none where nothing was counted."""
    if not counts:
        return {}
    found = [_mean_and_spread(counts[name], *grain) for name, grain in _GRAIN.items()]
    spreads = [max(spread, least) for (_, spread), least in zip(found, SMALLEST_SPREAD, strict=True)]
    return {MEAN: [mean for mean, _ in found], SPREAD: spreads}


def _mean_and_spread(counts: npt.NDArray[np.int64], grain: float, limit: float) -> tuple[float, float]:
    """Returns both of counted values, tails as the quantiles where they begin; zeros where there is none."""
    total = int(counts.sum())
    if not total:
        return 0.0, 0.0
    values = (np.arange(len(counts)) - round(limit / grain)) * grain
    ends = np.searchsorted(np.cumsum(counts), [_TAIL * total, (1.0 - _TAIL) * total])
    within = np.clip(values, *values[np.minimum(ends, len(values) - 1)])
    mean = float((counts * within).sum() / total)
    return mean, math.sqrt(float((counts * (within - mean) ** 2).sum() / total))


def stats_in(facts: Facts) -> Sequence[Sequence[float]]:
    """Returns mean and spread, (2, 2), of a run's facts; plain ones where its data have no actions."""
    stats: Sequence[Sequence[float]] = facts.get(STATS, PLAIN_STATS)
    return stats


def stats_of(facts: Mapping[str, Sequence[float]], cache: str) -> npt.NDArray[np.float32]:
    """Returns mean and spread, (2, 2), that a cache states; raises BadData naming the cache where it states none."""
    mean, spread = facts.get(MEAN, ()), facts.get(SPREAD, ())
    valid = len(mean) == len(spread) == len(SMALLEST_SPREAD)
    if not valid or any(value < least for value, least in zip(spread, SMALLEST_SPREAD, strict=True)):
        raise BadData(
            f"the training split holds no usable clip in cache {cache}, which states no mean and spread of actions; "
            "extract and label some, and build the cache again with its collection train"
        )
    return np.array([mean, spread], np.float32)
