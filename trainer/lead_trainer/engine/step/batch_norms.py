"""What the engine does with batch norms: freezes them, and undoes what a batch that is not finite did to them.

A skipped step leaves the weights, but its forward pass has moved the running statistics; one NaN there would stay for
good and ruin every evaluation.
"""

import torch
from torch.nn.modules.batchnorm import _BatchNorm


class BatchNorms:
    """The batch norms of a model, and their statistics before the step under way."""

    def __init__(self, model: torch.nn.Module) -> None:
        """Finds the norms; those without running statistics have nothing to freeze or to undo."""
        self._norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
        self._live = [
            buffer for norm in self._norms if norm.track_running_stats for buffer in norm.buffers(recurse=False)
        ]
        self._kept = [buffer.clone() for buffer in self._live]

    def freeze(self) -> None:
        """Lets every norm use and keep its statistics; to be repeated after `model.train()`."""
        for norm in self._norms:
            norm.eval()

    @torch.no_grad()
    def remember(self) -> None:
        """Notes the statistics before a step."""
        if self._live:
            torch._foreach_copy_(self._kept, self._live)

    @torch.no_grad()
    def undo(self) -> None:
        """Takes the statistics back to what `remember` noted."""
        if self._live:
            torch._foreach_copy_(self._live, self._kept)
