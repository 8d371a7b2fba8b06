"""Which learning rate suits: a sweep that raises it exponentially from step to step and watches the loss.

After Smith 2017, "Cyclical Learning Rates for Training Neural Networks", section 3.3. The suggestion is a tenth of the
rate at which the loss is least: the place of the steepest slope, which others take, is mostly noise's choice. The sweep
trains a state of its own, which the caller throws away.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lead_trainer.contract.samples import Batch
from lead_trainer.engine.loop import Stage, train_step
from lead_trainer.engine.step.state import TrainState

_SMOOTHING = 0.9  # weight of the past in the moving average of the loss, by which a sweep ends
_WINDOW = 0.04  # spread of the Gaussian that smooths a whole curve, as a share of its steps
_ENDS = 0.05  # share of the steps at each end that are ignored in the search
_START = 0.2  # share of the steps, at rates too low to change anything, whose median loss is where a fall begins
_CLEAR_FALL = 4.0  # times what noise leaves of the smoothed loss
_BELOW_MINIMUM = 10.0
_FEWEST_STEPS = 10
_DIVERGED = 4.0  # times the best loss: the sweep ends


@dataclass(frozen=True)
class Curve:
    """A sweep: learning rates, the loss of each step and its bias-corrected moving average."""

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    smoothed: tuple[float, ...]

    def suggestion(self) -> float | None:
        """Returns a tenth of the rate of the least smoothed loss, None where no fall stands out from the noise."""
        steps = len(self.rates)
        if steps < _FEWEST_STEPS:
            return None
        losses, spread = np.asarray(self.losses), max(1.0, _WINDOW * steps)
        smooth, ends = _smoothed(losses, spread), max(1, int(_ENDS * steps))
        lowest = ends + int(np.argmin(smooth[ends:-ends]))
        fall = np.median(losses[: max(3, int(_START * steps))]) - smooth[lowest]
        if fall <= _CLEAR_FALL * _noise(losses) / math.sqrt(2.0 * math.sqrt(math.pi) * spread):
            return None
        return self.rates[lowest] / _BELOW_MINIMUM

    def csv(self) -> str:
        """Returns the curve as a table."""
        rows = zip(self.rates, self.losses, self.smoothed, strict=True)
        return "lr,loss,smoothed_loss\n" + "".join(f"{lr:.9g},{loss:.9g},{smooth:.9g}\n" for lr, loss, smooth in rows)


def _smoothed(losses: npt.NDArray[np.float64], spread: float) -> npt.NDArray[np.float64]:
    """Returns the losses weighted by a Gaussian around each; neither early nor late, as a moving average is."""
    reach = math.ceil(3 * spread)
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / spread) ** 2)
    return np.convolve(np.pad(losses, reach, mode="edge"), weights / weights.sum(), "valid")


def _noise(losses: npt.NDArray[np.float64]) -> float:
    """Returns the standard deviation of a loss from step to step, robust against a few large differences."""
    return float(1.4826 * np.median(np.abs(np.diff(losses))) / math.sqrt(2.0))


def sweep(step: Callable[[float], float], least: float, most: float, steps: int) -> Curve:
    """Runs `step` at exponentially rising rates from `least` to `most` and returns the curve.

    Ends early where the smoothed loss is not finite or has grown to four times its best. Raises ValueError unless
    0 < least < most and there are at least 3 steps.
    """
    if not 0 < least < most or steps < 3:
        raise ValueError(f"expected 0 < min-lr < max-lr and at least 3 steps, found {least}, {most} and {steps}")
    rates: list[float] = []
    losses: list[float] = []
    smoothed: list[float] = []
    average = 0.0
    for number, rate in enumerate(np.geomspace(least, most, steps)):
        loss = step(float(rate))
        average = _SMOOTHING * average + (1 - _SMOOTHING) * loss
        corrected = average / (1 - _SMOOTHING ** (number + 1))
        if not math.isfinite(corrected) or (smoothed and corrected > _DIVERGED * min(smoothed)):
            break
        rates.append(float(rate))
        losses.append(loss)
        smoothed.append(corrected)
    return Curve(tuple(rates), tuple(losses), tuple(smoothed))


def sweep_stage(stage: Stage, state: TrainState, least: float, most: float, steps: int) -> Curve:
    """Trains `state` at rising learning rates, over as many epochs as that takes."""
    batches: Iterator[Batch] = iter(())

    def step(rate: float) -> float:
        nonlocal batches
        if state.step_in_epoch in (0, stage.plan.epoch(state.epoch).steps):
            state.epoch, state.step_in_epoch = state.epoch + bool(state.step), 0
            batches = stage.loader.batches(state.epoch)
        at_rate = replace(stage, lr_factor=lambda _: rate / max(state.optimizers.base_rates))
        return train_step(at_rate, state, batches).loss

    return sweep(step, least, most, steps)


def picture(curve: Curve, height: int = 12, width: int = 64) -> str:
    """Returns the smoothed loss over the logarithm of the rate as lines of characters, the suggestion marked by `^`."""
    if len(curve.rates) < 2:
        return "the loss was not finite from the beginning"
    log_rates = np.log10(np.asarray(curve.rates))
    columns = np.linspace(log_rates[0], log_rates[-1], width)
    values = np.interp(columns, log_rates, np.asarray(curve.smoothed))
    lines = [_row(values, row, height) for row in range(height)]
    axis = f"{curve.rates[0]:.1e}".ljust(width - 7) + f"{curve.rates[-1]:.1e}"
    best = curve.suggestion()
    marker = "" if best is None else " " * int(np.abs(columns - math.log10(best)).argmin()) + "^"
    return "\n".join(["|" + line for line in lines] + ["+" + "-" * width, " " + axis, " " + marker])


def _row(values: npt.NDArray[np.float64], row: int, height: int) -> str:
    low, high = float(values.min()), float(values.max())
    places = np.round((high - values) / max(high - low, 1e-12) * (height - 1))
    return "".join("*" if place == row else " " for place in places)
