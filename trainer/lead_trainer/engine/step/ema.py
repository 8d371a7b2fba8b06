"""An exponential moving average of the weights, beside the weights that are trained.

Torch's `AveragedModel` does the work: the first update copies, each later one gives the old average the weight `decay`.
Buffers (batch-norm statistics) are copied as they are. Validation and export use the average; a checkpoint holds both.
"""

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from lead_trainer.errors import BadConfig


class WeightAverage:
    """The average and the number of updates it has seen."""

    def __init__(self, model: torch.nn.Module, decay: float) -> None:
        """Copies `model`; raises BadConfig for a decay outside (0, 1)."""
        if not 0.0 < decay < 1.0:
            raise BadConfig(f"ema_decay: found {decay}, expected a number between 0 and 1, for example 0.999")
        self._averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))  # type: ignore[no-untyped-call]
        self._averaged.module.requires_grad_(False)
        self._decay = decay

    @property
    def model(self) -> torch.nn.Module:
        """The averaged weights as a model of their own, with the parameter names of the trained one."""
        module: torch.nn.Module = self._averaged.module
        return module

    @property
    def updates(self) -> int:
        """How many updates were averaged."""
        return int(self._averaged.n_averaged)

    @property
    def first_share(self) -> float:
        """How much of the average are still the weights of the first update, in [0, 1]."""
        return float(self._decay ** max(self.updates - 1, 0))

    def update(self, model: torch.nn.Module) -> None:
        """Takes in the weights of one optimizer step."""
        self._averaged.update_parameters(model)

    def load(self, state: dict[str, torch.Tensor], updates: int) -> None:
        """Continues a saved average."""
        self.model.load_state_dict(state)
        self._averaged.n_averaged.fill_(updates)
