"""One Argoverse 2 motion-forecasting scenario: the tracks of `scenario_<id>.parquet` as arrays, checked.

110 steps at 10 Hz: 50 observed, 60 to forecast. Columns: user guide of argoverse/av2-api, motion forecasting. A file of
the test split has the first 50 steps only. Shapes: A tracks, S steps.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lead_trainer.errors import BadData
from lead_trainer.recipes.distill.benchmarks.argoverse2.bounded_table import (
    OverLimit,
    parquet_columns,
    refuse_many_states,
)

OBSERVED_STEPS, FORECAST_STEPS = 50, 60
STEP_SECONDS = 0.1
FOCAL = 3  # object_category; 2 is scored, 1 unscored, 0 a fragment
OBJECT_TYPES = ("vehicle", "pedestrian", "motorcyclist", "cyclist", "bus", "static", "background", "construction",
                "riderless_bicycle", "unknown")  # fmt: skip
_COLUMNS = ("track_id", "object_type", "object_category", "timestep", "position_x", "position_y", "heading",
            "velocity_x", "velocity_y", "focal_track_id", "city", "scenario_id")  # fmt: skip


@dataclass(frozen=True)
class Scenario:
    """Tracks in the city's frame; NaN where a track was not seen."""

    name: str
    city: str
    focal: str  # a track id; empty where no track is the focal one
    track_ids: tuple[str, ...]
    types: npt.NDArray[np.uint8]  # (A,) positions in OBJECT_TYPES
    categories: npt.NDArray[np.int64]  # (A,)
    xy: npt.NDArray[np.float64]  # (A, S, 2) m
    heading: npt.NDArray[np.float64]  # (A, S) rad
    velocity: npt.NDArray[np.float64]  # (A, S, 2) m/s

    @property
    def steps(self) -> int:
        """S."""
        return int(self.xy.shape[1])

    @property
    def seen(self) -> npt.NDArray[np.bool_]:
        """(A, S)."""
        return ~np.isnan(self.heading)

    def track(self, track_id: str) -> int:
        """Returns a track's row; raises BadData where there is none."""
        try:
            return self.track_ids.index(track_id)
        except ValueError:
            raise BadData(f"scenario {self.name} has no track {track_id!r}; build the cache again") from None


def read_scenario(data: bytes, path: str) -> Scenario:
    """Returns a scenario; raises BadData naming the file and the column or value that is wrong."""
    try:
        table = parquet_columns(data, _COLUMNS)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadData(f"file {path} is not a scenario parquet: {error}; fetch it again") from error
    columns = {name: column.to_numpy() for name, column in table.items()}
    steps = columns["timestep"].astype(np.int64)
    if steps.min() < 0 or steps.max() >= OBSERVED_STEPS + FORECAST_STEPS:
        raise BadData(f"file {path}: timesteps {steps.min()}…{steps.max()}, expected 0…109")
    ids, first, row = np.unique(columns["track_id"].astype(str), return_index=True, return_inverse=True)
    if len(np.unique(row * 1000 + steps)) != len(row):
        raise BadData(f"file {path} gives a track two states at one timestep; fetch it again")
    unknown = sorted(set(columns["object_type"]) - set(OBJECT_TYPES))
    if unknown:
        raise BadData(f"file {path}: object type {unknown[0]!r}, expected one of {', '.join(OBJECT_TYPES)}")
    count = OBSERVED_STEPS if steps.max() < OBSERVED_STEPS else OBSERVED_STEPS + FORECAST_STEPS
    try:
        refuse_many_states(len(ids), count)
    except OverLimit as error:
        raise BadData(f"file {path}: {error}; fetch it again") from error

    def filled(*names: str) -> Any:
        array = np.full((len(ids), count, len(names)), np.nan)
        array[row, steps] = np.stack([columns[name] for name in names], axis=-1)
        return array

    return Scenario(
        name=str(columns["scenario_id"][0]),
        city=str(columns["city"][0]),
        focal=str(columns["focal_track_id"][0]),
        track_ids=tuple(str(name) for name in ids),
        types=np.array([OBJECT_TYPES.index(name) for name in columns["object_type"][first]], np.uint8),
        categories=columns["object_category"][first].astype(np.int64),
        xy=filled("position_x", "position_y"),
        heading=filled("heading")[..., 0],
        velocity=filled("velocity_x", "velocity_y"),
    )
