"""A batch on the device that computes with it; for whoever makes batches: the loop gets them moved."""

import torch

from lead_trainer.contract.samples import Batch


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Moves a batch's tensors to `device`, overlapping with computation where memory is pinned."""
    if device.type == "cpu":
        return batch
    return {
        key: value.to(device, non_blocking=True) if isinstance(value, torch.Tensor) else value
        for key, value in batch.items()
    }
