"""The file that the nuScenes prediction challenge takes: a JSON list, one entry an agent, in the map's frame.

Rules: nuscenes-devkit, `eval/prediction/data_classes.py` and the challenge's page: 1 to 25 modes of 12 points at 2 Hz.
"""

import json
from collections.abc import Sequence

from lead_trainer.recipes.distill.benchmarks.forecasts import AgentForecast
from lead_trainer.recipes.distill.benchmarks.nuscenes.preparation import FORECAST_STEPS

MOST_MODES = 25
FILE_NAME = "nuscenes_submission.json"


def submission(forecasts: Sequence[AgentForecast]) -> bytes:
    """Returns the JSON file; raises BadData naming the agent and the rule it breaks."""
    for forecast in forecasts:
        forecast.check(steps=FORECAST_STEPS, most_modes=MOST_MODES)
    entries = [
        {
            "instance": forecast.agent,
            "sample": forecast.scene,
            "prediction": forecast.modes.tolist(),
            "probabilities": forecast.probabilities.tolist(),
        }
        for forecast in forecasts
    ]
    return json.dumps(entries, allow_nan=False).encode()
