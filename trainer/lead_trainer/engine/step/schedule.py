"""Learning-rate schedules as pure functions: from an optimizer step to a factor of the base learning rate.

Called by recipes. A schedule has no state, so resuming at a step needs nothing but the step.
"""

import math
from collections.abc import Callable

Schedule = Callable[[int], float]  # optimizer step, from 0 -> factor in [0, 1]


def constant(_step: int) -> float:
    """Always 1."""
    return 1.0


def cosine(total_steps: int, least: float = 0.0) -> Schedule:
    """Falls from 1 to `least` along half a cosine over `total_steps`; stays there after."""
    if total_steps < 1:
        raise ValueError(f"a cosine needs at least one step, found {total_steps}")
    return lambda step: least + (1.0 - least) * _half_cosine(min(step, total_steps) / total_steps)


def warm_restarts(total_steps: int, steps_per_epoch: int) -> Schedule:
    """Cosine cycles of doubling length (Loshchilov and Hutter 2017) that end with the run.

    LEAD's cycles are 1, 2, 4, 8 and 16 epochs and so fit 31 epochs alone, or 1, 3, 7, 15. For other numbers of epochs
    the same doubling is stretched by less than 2 until the last cycle ends with the last step.
    """
    if total_steps < 1 or steps_per_epoch < 1:
        raise ValueError(f"expected at least one step, found {total_steps} and {steps_per_epoch} an epoch")
    cycles = max(1, _cycles_within(total_steps, steps_per_epoch))
    return _doubling_cycles(total_steps / (2**cycles - 1), cycles)


def whole_epochs_of_cycles(epochs: int) -> tuple[int, ...]:
    """Returns how many epochs are complete when each cycle of `warm_restarts` but the last ends, the first one first.

    A stretched cycle ends within an epoch; the one before it is the last that ends with a low rate.
    """
    cycles = max(1, _cycles_within(epochs, 1))
    first = epochs / (2**cycles - 1)
    return tuple(math.floor(first * (2**cycle - 1) + 1e-9) for cycle in range(1, cycles))


def fixed_warm_restarts(first_steps: int) -> Schedule:
    """Cosine cycles of `first_steps` and twice as many each time, wherever the run ends.

    As torch's CosineAnnealingWarmRestarts with T_mult 2: a run that ends within a cycle ends with a high rate.
    """
    if first_steps < 1:
        raise ValueError(f"expected at least one step in the first cycle, found {first_steps}")
    return _doubling_cycles(first_steps, math.inf)


def _doubling_cycles(first: float, cycles: float) -> Schedule:
    """Returns cosines of `first` steps and twice as many each time, of which the last stays low."""

    def factor(step: int) -> float:
        cycle = min(_cycles_within(step, first), cycles - 1)
        begin, length = first * (2**cycle - 1), first * 2**cycle
        return _half_cosine(min((step - begin) / length, 1.0))

    return factor


def _cycles_within(steps: int, first: float) -> int:
    return math.floor(math.log2(steps / first + 1) + 1e-9)


def warmed_up(schedule: Schedule, warmup_steps: int) -> Schedule:
    """Rises linearly to `schedule` within the first `warmup_steps`; 0 leaves it as it is."""
    if warmup_steps < 1:
        return schedule
    return lambda step: schedule(step) * min(1.0, (step + 1) / warmup_steps)


def lagging(schedule: Schedule) -> Schedule:
    """Gives each step the factor of the step before, as a loop does that steps its scheduler after its optimizer.

    LEAD trains so: the first two steps use the base rate, and the first step after a restart the old, nearly zero one.
    """
    return lambda step: schedule(max(0, step - 1))


def _half_cosine(progress: float) -> float:
    return 0.5 * (1.0 + math.cos(math.pi * progress))
