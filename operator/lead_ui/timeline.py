"""Attempts over time as bars of a drawing; pure geometry."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lead_ui.model import Attempt, Checkpoint, Run

WIDTH, ROW, TOP, LEFT = 1000, 26, 24, 170  # units of the drawing
_TICKS_S = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800)


@dataclass(frozen=True)
class Bar:
    """One attempt."""

    attempt: Attempt
    x: float
    y: float
    width: float


@dataclass(frozen=True)
class Tick:
    """A moment that the axis names."""

    x: float
    text: str


@dataclass(frozen=True)
class Timeline:
    """The drawing: bars by row, and an axis."""

    bars: Sequence[Bar]
    ticks: Sequence[Tick]
    height: float
    checkpoints: Sequence[tuple[float, float, Checkpoint]] = ()


def timeline(run: Run) -> Timeline | None:
    """Returns a run's attempts over time, None before any has begun to train."""
    dated = [each for each in run.attempts if each.began is not None]
    if not dated:
        return None
    first = min(each.began or 0.0 for each in dated)
    last = max(max(each.ended or 0.0, each.began or 0.0) for each in dated)
    last = max(last, first + 1.0)
    scale = (WIDTH - LEFT - 20) / (last - first)

    def x(moment: float) -> float:
        return round(LEFT + (moment - first) * scale, 1)

    bars = [
        Bar(each, x(each.began or first), TOP + number * ROW, max(3.0, x(each.ended or last) - x(each.began or first)))
        for number, each in enumerate(dated)
    ]
    step = next((step for step in _TICKS_S if (last - first) / step <= 8), 604800 * math.ceil((last - first) / 4838400))
    count = int((last - first) // step)
    ticks = [Tick(x(first + number * step), _text(number * step)) for number in range(count + 1)]
    return Timeline(bars, ticks, TOP + len(bars) * ROW + 8)


def _text(seconds: int) -> str:
    if seconds == 0:
        return "start"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"+{seconds // size} {unit}"
    return f"+{seconds} s"
