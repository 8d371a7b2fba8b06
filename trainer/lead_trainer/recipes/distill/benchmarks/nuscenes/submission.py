"""The file that the nuScenes prediction challenge takes: a JSON list, one entry an agent, in the map's frame.

Rules: nuscenes-devkit, `eval/prediction/data_classes.py` and the challenge's page: 1 to 25 modes of 12 points at 2 Hz.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lead_trainer.errors import BadData
from lead_trainer.recipes.distill.benchmarks.nuscenes.preparation import FORECAST_STEPS

MOST_MODES = 25
FILE_NAME = "nuscenes_submission.json"


@dataclass(frozen=True)
class AgentForecast:
    """One agent's modes in the map's frame."""

    instance: str
    sample: str
    modes: npt.NDArray[np.float64]  # (K, 12, 2) m
    probabilities: npt.NDArray[np.float64]  # (K,)


def submission(forecasts: Sequence[AgentForecast]) -> bytes:
    """Returns the JSON file; raises BadData naming the agent and the rule it breaks."""
    entries = []
    for forecast in forecasts:
        _check(forecast)
        entries.append(
            {
                "instance": forecast.instance,
                "sample": forecast.sample,
                "prediction": forecast.modes.tolist(),
                "probabilities": forecast.probabilities.tolist(),
            }
        )
    return json.dumps(entries, allow_nan=False).encode()


def _check(forecast: AgentForecast) -> None:
    shape, who = forecast.modes.shape, f"forecast of instance {forecast.instance} in sample {forecast.sample}"
    if shape[1:] != (FORECAST_STEPS, 2) or not 1 <= len(forecast.modes) <= MOST_MODES:
        raise BadData(f"{who}: shape {shape}, expected (1…{MOST_MODES}, {FORECAST_STEPS}, 2)")
    if not np.isfinite(forecast.modes).all():
        raise BadData(f"{who} holds values that are not numbers")
    if forecast.probabilities.shape != shape[:1] or not np.isclose(forecast.probabilities.sum(), 1.0):
        raise BadData(f"{who}: probabilities {forecast.probabilities.tolist()}, expected one a mode, sum 1")
