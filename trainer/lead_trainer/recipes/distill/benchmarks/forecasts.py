"""What a submission file holds of one agent, and the rules that both challenges share."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lead_trainer.errors import BadData


@dataclass(frozen=True)
class AgentForecast:
    """One agent's modes in the map's frame."""

    scene: str  # the scenario (Argoverse 2) or the sample (nuScenes) at which it is forecast
    agent: str  # the track or the instance
    modes: npt.NDArray[np.float64]  # (K, T, 2) m
    probabilities: npt.NDArray[np.float64]  # (K,)

    def check(self, *, steps: int, most_modes: int) -> None:
        """Raises BadData naming the agent and the rule it breaks."""
        shape, who = self.modes.shape, f"forecast of {self.agent} in {self.scene}"
        if shape[1:] != (steps, 2) or not 1 <= len(self.modes) <= most_modes:
            raise BadData(f"{who}: shape {shape}, expected (1…{most_modes}, {steps}, 2)")
        if not np.isfinite(self.modes).all():
            raise BadData(f"{who} holds values that are not numbers")
        found = self.probabilities
        if found.shape != shape[:1] or not np.isclose(found.sum(), 1.0) or found.min() < 0:
            raise BadData(f"{who}: probabilities {found.tolist()}, expected one a mode, none below 0, with sum 1")
