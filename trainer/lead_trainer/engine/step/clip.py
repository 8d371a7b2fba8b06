"""Gradient clipping: to a fixed norm, to a quantile of the norms seen so far, or to the smaller of both.

The quantile follows AutoClip (Seetharaman et al. 2020, "AutoClip: Adaptive Gradient Clipping for Source Separation
Networks"): the norm of this step joins the history, then the gradients are scaled down to the history's quantile. The
history is part of a checkpoint (`clipper_<epoch>.pth`), so a resumed run clips as an uninterrupted one.
"""

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from lead_trainer.errors import BadConfig


class Clipper:
    """Scales gradients down where they are too long; `max_norm` and `quantile` are off at 0."""

    def __init__(self, max_norm: float = 0.0, quantile: float = 0.0, history_length: int = 1000) -> None:
        """Raises BadConfig for a quantile outside [0, 1) or a history without room."""
        if not 0.0 <= quantile < 1.0:
            raise BadConfig(f"grad_quantile: found {quantile}, expected a number from 0 (off) to below 1")
        if history_length < 1:
            raise BadConfig(f"grad_history_length: found {history_length}, expected at least 1 gradient norm")
        self.max_norm, self.quantile = max_norm, quantile
        self.history: deque[float] = deque(maxlen=history_length)

    @property
    def has_history(self) -> bool:
        """Whether there is something that a checkpoint must hold."""
        return self.quantile > 0.0

    def clip(self, model: torch.nn.Module) -> float:
        """Clips in place and returns the total norm before; one that is not finite clips nothing."""
        parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
        value = float(norm)
        if math.isfinite(value):
            limit = self._limit(value)
            if limit < math.inf:
                torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm)
        return value

    def _limit(self, norm: float) -> float:
        limit = self.max_norm if self.max_norm > 0 else math.inf
        if not self.has_history:
            return limit
        self.history.append(norm)
        return min(limit, float(np.quantile(np.asarray(self.history), self.quantile)))

    def state_dict(self) -> dict[str, Any]:
        """Returns the history as a float64 tensor, oldest first."""
        return {"history": torch.tensor(list(self.history), dtype=torch.float64)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues a saved history."""
        self.history.clear()
        self.history.extend(state["history"].tolist())
