"""Normalisation layers under mixed precision and under many processes.

What they give stays in fp32 until the next layer asks for less; LEAD rounds it to the input's type at once.
Called once on a finished model, by recipes (`keep_norms_in_fp32`) and by whoever wraps it for several ranks
(`synchronise_norms`).
"""

from typing import Any

import torch
from torch import nn

NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)


def keep_norms_in_fp32(model: nn.Module) -> None:
    """Makes every norm layer of `model` take and give fp32 where autocast would hand it half precision."""
    for module in model.modules():
        if isinstance(module, NORMS):
            module.register_forward_pre_hook(_to_fp32)


def synchronise_norms(model: nn.Module) -> nn.Module:
    """Returns `model` with batch norms that share their statistics between ranks; CUDA only.

    torch's own conversion would drop the activation inside timm's BatchNormAct2d and the hooks of keep_norms_in_fp32.
    """
    from timm.layers import convert_sync_batchnorm  # a third of a process's start, which a toy or a vector model spares

    converted: nn.Module = convert_sync_batchnorm(model)
    keep_norms_in_fp32(converted)
    return converted


def _to_fp32(_module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x.float() if torch.is_tensor(x) and x.dtype in (torch.bfloat16, torch.float16) else x for x in inputs)
