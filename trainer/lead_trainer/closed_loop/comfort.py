"""How hard the ego vehicle accelerated and how abruptly, from a log of its velocity.

A log is a CSV file with the columns `time_s` (simulated, rising), `vx_mps` and `vy_mps` (world frame), a row a tick.
Accelerations [m/s²] and jerks [m/s³] are first differences, as nuPlan's and CARLA's tools take them.
"""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lead_trainer.errors import BadData

COLUMNS = ("time_s", "vx_mps", "vy_mps")
MAX_ROWS, MAX_BYTES = 1_000_000, 128 * 1024 * 1024
LEAST_ROWS = 3  # for one jerk


@dataclass(frozen=True)
class Comfort:
    """The greatest acceleration [m/s²] and jerk [m/s³] of a drive, or of several."""

    max_acceleration: float
    max_jerk: float

    @staticmethod
    def worst(drives: "Sequence[Comfort]") -> "Comfort":
        """Returns the greatest of each over at least one drive."""
        return Comfort(max(drive.max_acceleration for drive in drives), max(drive.max_jerk for drive in drives))


def comfort_of(path: Path) -> Comfort:
    """Returns the comfort of a logged drive; raises BadData that names file, row and column."""
    rows = _rows(path)
    velocities_T2, steps = rows[:, 1:], np.diff(rows[:, 0])
    if (steps <= 0.0).any():
        row = int(np.argmax(steps <= 0.0)) + 2
        raise BadData(
            f"{path}: row {row}: time_s is {rows[row - 1, 0]:g} after {rows[row - 2, 0]:g}, expected it to rise"
        )
    accelerations_T2 = np.diff(velocities_T2, axis=0) / steps[:, None]
    between = (steps[1:] + steps[:-1]) / 2.0
    jerks_T2 = np.diff(accelerations_T2, axis=0) / between[:, None]
    return Comfort(_greatest_norm(accelerations_T2), _greatest_norm(jerks_T2))


def _rows(path: Path) -> npt.NDArray[np.float64]:
    if path.stat().st_size > MAX_BYTES:
        raise BadData(f"{path} has {path.stat().st_size} bytes, expected at most {MAX_BYTES}")
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        reader = csv.DictReader(file)
        absent = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
        if absent:
            raise BadData(f"{path} has no column {absent[0]}, expected {', '.join(COLUMNS)}")
        rows: list[list[float]] = []
        for number, row in enumerate(reader, start=1):
            if number > MAX_ROWS:
                raise BadData(f"{path} has more than {MAX_ROWS} rows")
            rows.append([_number(path, number, column, row[column]) for column in COLUMNS])
    if len(rows) < LEAST_ROWS:
        raise BadData(f"{path} has {len(rows)} rows, expected at least {LEAST_ROWS}")
    return np.array(rows, np.float64)


def _number(path: Path, row: int, column: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadData(f"{path}: row {row}: {column} is {(text or '')[:40]!r}, expected a finite number")
    return value


def _greatest_norm(vectors_T2: npt.NDArray[np.float64]) -> float:
    return float(np.linalg.norm(vectors_T2, axis=1).max())
