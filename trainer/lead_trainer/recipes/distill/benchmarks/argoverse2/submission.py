"""The file that Argoverse 2's single-agent challenge takes: one row a mode, in the city's frame.

Columns and rules: argoverse/av2-api, `datasets/motion_forecasting/eval/submission.py`.
"""

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lead_trainer.recipes.distill.benchmarks.argoverse2.scenario import FORECAST_STEPS
from lead_trainer.recipes.distill.benchmarks.forecasts import AgentForecast

MOST_MODES = 6
FILE_NAME = "argoverse2_submission.parquet"


def submission(forecasts: Sequence[AgentForecast]) -> bytes:
    """Returns the parquet file; raises BadData naming the track and the rule it breaks."""
    columns: dict[str, list[Any]] = {
        "scenario_id": [], "track_id": [], "probability": [], "predicted_trajectory_x": [], "predicted_trajectory_y": []
    }  # fmt: skip
    for forecast in forecasts:
        forecast.check(steps=FORECAST_STEPS, most_modes=MOST_MODES)
        for mode, probability in zip(forecast.modes, forecast.probabilities, strict=True):
            for name, value in zip(
                columns, (forecast.scene, forecast.agent, probability, *mode.T.tolist()), strict=True
            ):
                columns[name].append(value)
    texts, numbers = pa.string(), pa.list_(pa.float64())
    kinds = dict(zip(columns, (texts, texts, pa.float64(), numbers, numbers), strict=True))
    sink = io.BytesIO()
    pq.write_table(pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()}), sink)
    return sink.getvalue()
