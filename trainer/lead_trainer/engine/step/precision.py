"""In which number format a step computes, and the loss scale that fp16 needs.

`auto` asks the device instead of a table of GPU names: bf16 where CUDA capability 8.0 or newer offers it, else fp32.
"""

from contextlib import AbstractContextManager

import torch

from lead_trainer.contract.training_keys import LossScale
from lead_trainer.errors import BadConfig

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def chosen_dtype(precision: str, device: torch.device) -> torch.dtype:
    """Returns the autocast dtype for `precision` on `device`; raises BadConfig for an unknown name."""
    if precision == "auto":
        modern = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
        return torch.bfloat16 if modern else torch.float32
    if precision not in _DTYPES:
        raise BadConfig(f"precision is {precision!r}, expected one of auto, {', '.join(_DTYPES)}")
    return _DTYPES[precision]


def autocast(dtype: torch.dtype, device: torch.device) -> AbstractContextManager[object]:
    """Returns the context in which forward and losses run; fp32 switches autocast off."""
    if dtype == torch.float32:
        return torch.autocast(device.type, enabled=False)
    return torch.autocast(device.type, dtype=dtype)


def gradient_scaler(dtype: torch.dtype, device: torch.device, scale: LossScale) -> torch.amp.GradScaler:
    """Returns the loss scaler, switched off (scale 1, empty state) unless the dtype is fp16."""
    return torch.amp.GradScaler(
        device.type,
        init_scale=scale.initial,
        growth_factor=scale.growth,
        backoff_factor=scale.backoff,
        growth_interval=scale.growth_interval,
        enabled=dtype == torch.float16,
    )


def update_scale(scaler: torch.amp.GradScaler, scale: LossScale) -> None:
    """Moves the loss scale after a step, never above its largest value."""
    scaler.update()
    if scaler.is_enabled() and scaler.get_scale() > scale.largest:
        scaler.update(scale.largest)
