"""Curves as they are drawn: points over an axis, reduced to a few hundred buckets, lines of seeds as one band; pure."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lead_ui.event_files.event_log import Series

Axis = Literal["step", "epoch", "time"]
AXES: tuple[Axis, ...] = ("step", "epoch", "time")
BUCKETS = 240  # of one line: a chart has some 350 pixels
DIGITS = 6  # significant, of a number in an answer


@dataclass(frozen=True)
class Line:
    """Points of one line; `low` and `high` bound what a bucket or a group of seeds holds."""

    name: str
    x: list[float] = field(default_factory=list)
    y: list[float | None] = field(default_factory=list)
    low: list[float | None] = field(default_factory=list)
    high: list[float | None] = field(default_factory=list)


@dataclass(frozen=True)
class Placement:
    """Where a stage instance begins on the axes: behind the stages that it goes on from."""

    steps_before: int = 0
    epochs_before: float = 0.0
    steps_per_epoch: float | None = None  # None: not known

    def epoch_of(self, step: int) -> float | None:
        """Returns the epochs that are complete at a step of the stage, None where that is not known."""
        return self.epochs_before + step / self.steps_per_epoch if self.steps_per_epoch else None


def positions(series: Series, axis: Axis, placement: Placement) -> list[float] | None:
    """Returns x of every point: steps, epochs, or seconds since 1970; None for epochs of which nobody reported any."""
    if axis == "time":
        return list(series.walls)
    if axis == "step":
        return [float(step + placement.steps_before) for step in series.steps]
    per_epoch = placement.steps_per_epoch
    if not per_epoch:
        return None
    return [placement.epochs_before + step / per_epoch for step in series.steps]


def drawn(
    name: str,
    series: Series,
    axis: Axis,
    placement: Placement = Placement(),
    span: tuple[float, float] | None = None,
    buckets: int = BUCKETS,
) -> Line | None:
    """Returns a series as a line of at most `buckets` points between the ends of `span`, None without any."""
    x = positions(series, axis, placement)
    if x is None:
        return None
    first, last = 0, len(x)
    if span is not None:  # one more at either side, so that the line leaves the chart
        first, last = max(0, bisect_left(x, span[0]) - 1), min(len(x), bisect_right(x, span[1]) + 1)
    if first >= last:
        return None
    return _reduced(name, x[first:last], series.values[first:last], buckets)


def _reduced(name: str, x: Sequence[float], y: Sequence[float], buckets: int) -> Line:
    line = Line(name)
    count = len(x)
    size = max(1, math.ceil(count / max(1, buckets)))
    for first in range(0, count, size):
        values: Sequence[float] = y[first : first + size]
        mean = sum(values) / len(values)
        if not math.isfinite(mean):
            values = [value for value in values if math.isfinite(value)]
            mean = sum(values) / len(values) if values else math.nan
        middle = x[first] if size == 1 else x[min(first + size // 2, count - 1)]
        line.x.append(middle)
        line.y.append(rounded(mean))
        line.low.append(rounded(min(values)) if values else None)
        line.high.append(rounded(max(values)) if values else None)
    return line


def rounded(value: float) -> float | None:
    """Returns a number with as many digits as a chart shows, None for one that is not finite."""
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def as_band(name: str, lines: Sequence[Line]) -> Line:
    """Returns the mean of lines and, as its bounds, the least and the greatest of them, at the x of the longest line.

    A line counts only where it has points on both sides: seeds that are behind do not bend the mean with a guess.
    """
    longest = max(lines, key=lambda line: len(line.x))
    band = Line(name)
    for x in longest.x:
        found = [value for line in lines if (value := _at(line, x)) is not None]
        if found:
            band.x.append(x)
            band.y.append(rounded(sum(found) / len(found)))
            band.low.append(min(found))
            band.high.append(max(found))
    return band


def _at(line: Line, x: float) -> float | None:
    """Returns a line's value at x, between its points; None outside it, or beside a gap."""
    right = bisect_left(line.x, x)
    if right == len(line.x) or (right == 0 and line.x[0] != x):
        return None
    if line.x[right] == x:
        return line.y[right]
    before, after = line.y[right - 1], line.y[right]
    if before is None or after is None:
        return None
    share = (x - line.x[right - 1]) / (line.x[right] - line.x[right - 1])
    return before + share * (after - before)


def aligned(lines: Sequence[Line]) -> dict[str, list[list[float | None]] | list[float]]:
    """Returns lines over one common x, as charts take them: {x, and of each line y, low and high}; None is a gap."""
    common = sorted({x for line in lines for x in line.x})
    at = {x: index for index, x in enumerate(common)}
    columns = list[list[float | None]]()
    for line in lines:
        for values in (line.y, line.low, line.high):
            column: list[float | None] = [None] * len(common)
            for x, value in zip(line.x, values, strict=True):
                column[at[x]] = value
            columns.append(column)
    return {"x": common, "columns": columns}


def sparkline(values: Sequence[float], width: int, height: int) -> str:
    """Returns the points of an SVG polyline through the finite ones of `values`; empty for fewer than two."""
    shown = [value for value in values if math.isfinite(value)]
    if len(shown) < 2:
        return ""
    size = math.ceil(len(shown) / width)
    means = [sum(part) / len(part) for part in (shown[at : at + size] for at in range(0, len(shown), size))]
    low, high = min(means), max(means)
    scale = (height - 2) / (high - low) if high > low else 0.0
    step = (width - 2) / max(1, len(means) - 1)
    return " ".join(f"{1 + at * step:.1f},{height - 1 - (value - low) * scale:.1f}" for at, value in enumerate(means))


def grouped(names: Mapping[str, str], lines: Sequence[Line]) -> list[Line]:
    """Returns lines with those of one group, by `names` of line to group, as one band; a group of one is its line."""
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(names.get(line.name, line.name), []).append(line)
    return [
        as_band(f"{name}, mean of {len(members)}", members) if len(members) > 1 else members[0]
        for name, members in groups.items()
    ]
