"""Which windows an epoch draws: all, or the third that its phase of the curriculum trains."""

import numpy as np
import numpy.typing as npt

from lead_trainer.contract.samples import Indices
from lead_trainer.recipes.world.data_keys import CurriculumKeys

PHASES = 3


def phase_of(keys: CurriculumKeys, epoch: int) -> int | None:
    """Returns the phase 0, 1 or 2 of an epoch, None where all windows are drawn; a pure function."""
    phase = epoch // keys.epochs_per_phase
    return phase if keys.enabled and phase < PHASES else None


def by_difficulty(difficulty: npt.NDArray[np.float64]) -> Indices:
    """Returns the windows (n,) from the easiest on; equal ones stay in their order."""
    return np.argsort(difficulty, kind="stable").astype(np.int64)


def drawn(order: Indices, phase: int | None) -> Indices:
    """Returns the windows of a phase, sorted: the phase-th third of `order`, all of them where there is no phase."""
    if phase is None:
        return np.arange(len(order), dtype=np.int64)
    return np.sort(order[phase * len(order) // PHASES : (phase + 1) * len(order) // PHASES])
