"""Sine position embeddings of points and grids, as DETR defines them (Carion et al. 2020): y first, then x."""

import math

import torch
from torch import Tensor

TEMPERATURE = 10_000.0


def _sines(angles: Tensor, features: int) -> Tensor:
    """Returns (..., features): sin and cos of `angles` (...) at falling frequencies, interleaved."""
    index = torch.arange(features, dtype=torch.float32, device=angles.device)
    scaled = angles[..., None] / TEMPERATURE ** (2 * (index // 2) / features)
    return torch.stack((scaled[..., 0::2].sin(), scaled[..., 1::2].cos()), dim=-1).flatten(-2)


def embed_points(points: Tensor, dim: int) -> Tensor:
    """Embeds points (..., 2) = (x, y) in [0, 1] as (..., dim)."""
    angles = points * (2 * math.pi)
    return torch.cat((_sines(angles[..., 1], dim // 2), _sines(angles[..., 0], dim // 2)), dim=-1)


def embed_grid(height: int, width: int, features: int, device: torch.device | str = "cpu") -> Tensor:
    """Embeds the cells of a grid as (1, 2 * features, height, width)."""
    rows = torch.arange(1, height + 1, dtype=torch.float32, device=device) / (height + 1e-6) * (2 * math.pi)
    columns = torch.arange(1, width + 1, dtype=torch.float32, device=device) / (width + 1e-6) * (2 * math.pi)
    y = _sines(rows, features)[:, None, :].expand(height, width, features)
    x = _sines(columns, features)[None, :, :].expand(height, width, features)
    return torch.cat((y, x), dim=-1).permute(2, 0, 1)[None]
