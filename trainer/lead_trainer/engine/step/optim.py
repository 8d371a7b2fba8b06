"""The optimizer that recipes share: AdamW, which parameters it decays, and how a saved state is taken up.

Called by recipes and, for a saved state, by `resume`. The learning rate of each step comes from `schedule`; nothing
here knows the step.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from lead_trainer.errors import BadConfig


@dataclass(frozen=True)
class AdamWSettings:
    """Hyper-parameters of AdamW; the defaults are torch's, apart from those a recipe must choose."""

    lr: float
    weight_decay: float
    amsgrad: bool = False
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    decay_norms_and_biases: bool = True
    group_lrs: Mapping[str, float] = field(default_factory=dict)  # by the first part of a parameter's name: `encoder`


def make_adamw(model: nn.Module, settings: AdamWSettings) -> torch.optim.AdamW:
    """Returns AdamW over the parameters of `model`, fused where the device has it.

    One group in the model's order, so that a saved state fits LEAD's: what is frozen keeps its place, and without a
    gradient it is neither moved nor decayed. More groups where norms and biases are left out of the decay (decayed,
    then not) or parts of the model have a rate of their own (these first, in the order they are given). Raises
    BadConfig for a rate that belongs to no trainable parameter.
    """
    named = dict(model.named_parameters())
    if not any(parameter.requires_grad for parameter in named.values()):
        raise ValueError("the model has no trainable parameter")
    groups: list[dict[str, Any]] = []
    for lr, parameters in _by_rate(named, settings):
        decayed = [p for p in parameters if p.ndim > 1 or settings.decay_norms_and_biases]
        plain = [p for p in parameters if p.ndim <= 1 and not settings.decay_norms_and_biases]
        for params, weight_decay in ((decayed, settings.weight_decay), (plain, 0.0)):
            if params:
                groups.append({"params": params, "lr": lr, "weight_decay": weight_decay})
    fused = all(parameter.is_cuda for parameter in named.values())
    return torch.optim.AdamW(
        groups,
        lr=settings.lr,
        betas=settings.betas,
        eps=settings.eps,
        amsgrad=settings.amsgrad,
        fused=fused or None,
    )


def _by_rate(named: Mapping[str, nn.Parameter], settings: AdamWSettings) -> list[tuple[float, list[nn.Parameter]]]:
    """Returns every parameter once, with its rate: the named parts of the model first, then the rest."""
    left, groups = dict(named), []
    for part, lr in settings.group_lrs.items():
        names = [name for name in left if name == part or name.startswith(f"{part}.")]
        if not any(left[name].requires_grad for name in names):
            raise BadConfig(f"{part}: it has a learning rate of its own, but no trainable parameter has that name")
        groups.append((lr, [left.pop(name) for name in names]))
    return [*groups, (settings.lr, list(left.values()))] if left else groups


def load_optimizer(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """Loads a saved state of an optimizer of the same model; raises BadConfig where its groups have other sizes."""
    found = [len(group["params"]) for group in saved["param_groups"]]
    expected = [len(group["params"]) for group in optimizer.param_groups]
    if found != expected:
        raise BadConfig(
            f"the checkpoint's optimizer: found groups of {found} parameters, expected {expected}; a version of the "
            "trainer with another model wrote it: resume with that version, or begin another logdir with the "
            "checkpoint's weights as load_file"
        )
    optimizer.load_state_dict(dict(saved))
