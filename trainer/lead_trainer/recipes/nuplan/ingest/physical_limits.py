"""What a column of measured numbers may hold: limits that no drive of a car exceeds, wide enough for every real log.

Beyond them a number is no measurement, and some become infinite where records hold them as float32.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from lead_trainer.errors import BadData
from lead_trainer.recipes.nuplan.geometry import Doubles
from lead_trainer.recipes.nuplan.ingest.bounded_database import Row
from lead_trainer.recipes.nuplan.ingest.cell_values import numbers_of

MAX_UTM_M = 1e7  # a zone of UTM reaches 10,000 km to the north
MAX_ALTITUDE_M = 1e4
MAX_SPEED, MAX_ACCELERATION = 150.0, 100.0  # m/s, m/s²
MIN_SIDE_M, MAX_SIDE_M = 1e-3, 100.0  # of a box
MAX_YAW = 4 * math.pi  # radians: some turns, should a log not wrap them
_MAX_PART = 2.0  # of a quaternion, whose norm is checked where it is used

_AT_MOST: Mapping[str, float] = {
    **dict.fromkeys(("x", "y"), MAX_UTM_M),
    "z": MAX_ALTITUDE_M,
    **dict.fromkeys(("qw", "qx", "qy", "qz"), _MAX_PART),
    **dict.fromkeys(("vx", "vy", "vz"), MAX_SPEED),
    **dict.fromkeys(("acceleration_x", "acceleration_y"), MAX_ACCELERATION),
    "yaw": MAX_YAW,
}
LIMITS: Mapping[str, tuple[float, float]] = {
    **{column: (-most, most) for column, most in _AT_MOST.items()},
    **dict.fromkeys(("width", "length", "height"), (MIN_SIDE_M, MAX_SIDE_M)),
}


def measured(rows: Sequence[Row], first: int, name: Callable[[int], str], columns: Sequence[str]) -> Doubles:
    """Returns the columns from `first` on as (rows, columns); raises BadData naming row, column and range.

    `name` gives what the row of a number is called, and `columns` are keys of LIMITS.
    """
    last = first + len(columns)
    low, high = np.array([LIMITS[column] for column in columns]).T
    try:
        values = np.array([row[first:last] for row in rows], np.float64).reshape(len(rows), len(columns))
        fine = bool(((values >= low) & (values <= high)).all())
        fine &= all(type(value) is not str for row in rows for value in row[first:last])
    except (TypeError, ValueError, OverflowError):
        fine = False
    if not fine:
        for at, row in enumerate(rows):
            for column, value in zip(columns, row[first:last], strict=True):
                _refuse_outside(value, column, f"{name(at)}, {column}")
    return values


def _refuse_outside(value: object, column: str, where: str) -> None:
    """Raises BadData for what is no number, or outside of its column's limits."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        numbers_of([value], where)
    elif not LIMITS[column][0] <= value <= LIMITS[column][1]:
        low, high = LIMITS[column]
        raise BadData(f"{where}: found {value:g}, expected {low:g} to {high:g}; fetch the file again")
