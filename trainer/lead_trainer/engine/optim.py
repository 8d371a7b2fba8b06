"""The optimizer that recipes share: AdamW, and which parameters it decays.

Called by recipes. The learning rate of each step comes from `schedule`; nothing here knows the step.
"""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class AdamWSettings:
    """Hyper-parameters of AdamW; the defaults are torch's, apart from those a recipe must choose."""

    lr: float
    weight_decay: float
    amsgrad: bool = False
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    decay_norms_and_biases: bool = True


def make_adamw(model: nn.Module, settings: AdamWSettings) -> torch.optim.AdamW:
    """Returns AdamW over the trainable parameters of `model`, fused where the device has it.

    One group in the model's order, so that a saved state fits LEAD's; two (decayed, then not) when norms and biases
    are left out of the decay.
    """
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trainable:
        raise ValueError("the model has no trainable parameter")
    groups = [{"params": trainable, "weight_decay": settings.weight_decay}]
    if not settings.decay_norms_and_biases:
        groups = [
            {"params": [p for p in trainable if p.ndim > 1], "weight_decay": settings.weight_decay},
            {"params": [p for p in trainable if p.ndim <= 1], "weight_decay": 0.0},
        ]
    fused = all(parameter.is_cuda for parameter in trainable)
    return torch.optim.AdamW(
        groups,
        lr=settings.lr,
        betas=settings.betas,
        eps=settings.eps,
        amsgrad=settings.amsgrad,
        fused=fused or None,
    )
