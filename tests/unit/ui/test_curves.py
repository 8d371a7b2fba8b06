"""A curve is drawn with few points that lie about none of its values; axes and bands are what they are called."""

import math
from array import array

from hypothesis import given
from hypothesis import strategies as st

from lead_ui.curves import Line, Placement, aligned, as_band, drawn, sparkline
from lead_ui.event_files.event_log import Series


def series_of(values: list[float]) -> Series:
    steps = range(1, len(values) + 1)
    return Series(array("q", steps), array("d", (1e9 + step for step in steps)), array("f", values))


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=2000), st.integers(1, 300))
def test_no_extreme_is_lost_and_the_mean_lies_between_them(values: list[float], buckets: int) -> None:
    line = drawn("a", series_of(values), "step", buckets=buckets)
    assert line is not None and len(line.x) <= buckets
    lows, highs = [v for v in line.low if v is not None], [v for v in line.high if v is not None]
    assert math.isclose(min(lows), min(values), rel_tol=1e-4, abs_tol=1e-6)
    assert math.isclose(max(highs), max(values), rel_tol=1e-4, abs_tol=1e-6)
    for mean, low, high in zip(line.y, line.low, line.high, strict=True):
        assert mean is not None and low is not None and high is not None
        assert low - 1e-4 * abs(low) - 1e-6 <= mean <= high + 1e-4 * abs(high) + 1e-6
    assert line.x == sorted(line.x)


def test_what_is_not_finite_is_a_gap_and_hides_no_neighbour() -> None:
    line = drawn("a", series_of([1.0, math.nan, math.inf, 4.0]), "step")
    assert line is not None and line.y == [1.0, None, None, 4.0]
    line = drawn("a", series_of([1.0, math.nan, math.inf, 4.0]), "step", buckets=1)
    assert line is not None and (line.y, line.low, line.high) == ([2.5], [1.0], [4.0])


def test_a_stage_begins_on_the_axes_where_its_parent_ends() -> None:
    place = Placement(steps_before=100, epochs_before=2.0, steps_per_epoch=50.0)
    series = series_of([1.0, 2.0])
    assert drawn("a", series, "step", place).x == [101.0, 102.0]  # type: ignore[union-attr]
    assert drawn("a", series, "epoch", place).x == [2.02, 2.04]  # type: ignore[union-attr]
    assert drawn("a", series, "time", place).x == [1e9 + 1, 1e9 + 2]  # type: ignore[union-attr]
    assert drawn("a", series, "epoch", Placement()) is None


def test_a_part_of_the_axis_is_drawn_more_finely() -> None:
    values = [float(number % 7) for number in range(5000)]
    line = drawn("a", series_of(values), "step", span=(1000.0, 1100.0))
    assert line is not None and line.x == [float(step) for step in range(999, 1102)]


def test_a_band_is_the_mean_and_the_range_of_seeds_where_they_have_points() -> None:
    first = Line("s0", [1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    second = Line("s1", [1.0, 3.0], [3.0, 5.0])
    band = as_band("seeds", [first, second])
    assert (band.y, band.low, band.high) == ([2.0, 3.0, 4.0], [1.0, 2.0, 3.0], [3.0, 4.0, 5.0])
    behind = as_band("seeds", [first, Line("s1", [1.0], [3.0])])
    assert behind.y == [2.0, 2.0, 3.0]


def test_lines_share_one_axis_with_gaps() -> None:
    lines = [
        Line("a", [1.0, 2.0], [5.0, 6.0], [5.0, 6.0], [5.0, 6.0]),
        Line("b", [2.0, 3.0], [7.0, 8.0], [7.0] * 2, [8.0] * 2),
    ]
    found = aligned(lines)
    assert found["x"] == [1.0, 2.0, 3.0]
    assert found["columns"][0] == [5.0, 6.0, None] and found["columns"][3] == [None, 7.0, 8.0]


def test_a_sparkline_needs_two_points() -> None:
    assert sparkline([1.0], 96, 22) == "" and sparkline([math.nan, 2.0], 96, 22) == ""
    assert sparkline([1.0, 0.0], 96, 22) == "1.0,1.0 95.0,21.0"
