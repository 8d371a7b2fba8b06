"""The file that Argoverse 2's single-agent challenge takes: one row a mode, in the city's frame.

Columns and rules: argoverse/av2-api, `datasets/motion_forecasting/eval/submission.py`.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lead_trainer.errors import BadData
from lead_trainer.recipes.distill.benchmarks.argoverse2.scenario import FORECAST_STEPS

MOST_MODES = 6
FILE_NAME = "argoverse2_submission.parquet"


@dataclass(frozen=True)
class TrackForecast:
    """One track's modes in the city's frame."""

    scenario_id: str
    track_id: str
    modes: npt.NDArray[np.float64]  # (K, 60, 2) m
    probabilities: npt.NDArray[np.float64]  # (K,)


def submission(forecasts: Sequence[TrackForecast]) -> bytes:
    """Returns the parquet file; raises BadData naming the track and the rule it breaks."""
    columns: dict[str, list[Any]] = {
        "scenario_id": [], "track_id": [], "probability": [], "predicted_trajectory_x": [], "predicted_trajectory_y": []
    }  # fmt: skip
    for forecast in forecasts:
        _check(forecast)
        for mode, probability in zip(forecast.modes, forecast.probabilities, strict=True):
            for name, value in zip(
                columns, (forecast.scenario_id, forecast.track_id, probability, *mode.T.tolist()), strict=True
            ):
                columns[name].append(value)
    texts, numbers = pa.string(), pa.list_(pa.float64())
    kinds = dict(zip(columns, (texts, texts, pa.float64(), numbers, numbers), strict=True))
    sink = io.BytesIO()
    pq.write_table(pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()}), sink)
    return sink.getvalue()


def _check(forecast: TrackForecast) -> None:
    shape = forecast.modes.shape
    who = f"forecast of track {forecast.track_id} in scenario {forecast.scenario_id}"
    if shape[1:] != (FORECAST_STEPS, 2) or not 1 <= len(forecast.modes) <= MOST_MODES:
        raise BadData(f"{who}: shape {shape}, expected (1…{MOST_MODES}, {FORECAST_STEPS}, 2)")
    if not np.isfinite(forecast.modes).all():
        raise BadData(f"{who} holds values that are not numbers")
    total = float(forecast.probabilities.sum())
    if (
        len(forecast.probabilities) != len(forecast.modes)
        or not np.isclose(total, 1.0)
        or forecast.probabilities.min() < 0
    ):
        raise BadData(
            f"{who}: {len(forecast.probabilities)} probabilities with sum {total}, expected one a mode, sum 1"
        )
