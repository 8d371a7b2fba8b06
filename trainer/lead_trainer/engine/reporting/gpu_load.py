"""How busy a GPU is, asked of its driver; used by whatever counts or advises on it."""

from contextlib import suppress

import torch


def busy_share(device: torch.device) -> float | None:
    """Returns which share [0, 1] of the last moment a GPU was busy; None where nothing reports it."""
    # Without nvidia-ml-py, or where the driver does not report it.
    with suppress(ModuleNotFoundError, RuntimeError):
        return min(1.0, torch.cuda.utilization(device) / 100)
    return None
