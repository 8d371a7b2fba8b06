"""Agents and map lines to tokens: one token each, made of its points by a small network and a maximum over them.

The idea is VectorNet's (arXiv 2005.04259): polylines, not pictures. Shapes: B batch, A agents, L lines, N points,
D the student's width.
"""

import torch
from torch import Tensor, nn

from lead_trainer.contract.samples import Batch
from lead_trainer.recipes.distill.benchmarks.argoverse2.scenario import OBJECT_TYPES, OBSERVED_STEPS
from lead_trainer.recipes.distill.benchmarks.argoverse2.vector_map import LINE_TYPES
from lead_trainer.recipes.distill.config import DistillConfig

POSITION_SCALE_M, SPEED_SCALE_MPS = 10.0, 10.0  # what becomes 1 at the input
AGENT_FEATURES = 7  # x, y, cos, sin, velocity x and y, time
LINE_FEATURES = 4  # x, y and the way to the next point


class VectorEncoder(nn.Module):
    """Agents, the one that is forecast first, then lines: (B, A + L, D); empty rows are one learned vector."""

    def __init__(self, config: DistillConfig) -> None:
        super().__init__()
        width = config.size.width
        self.agent = PointSet(AGENT_FEATURES, width)
        self.line = PointSet(LINE_FEATURES, width)
        self.agent_type = nn.Embedding(len(OBJECT_TYPES) + 1, width)
        self.line_type = nn.Embedding(len(LINE_TYPES) + 1, width)
        self.target = nn.Parameter(torch.randn(width) * 0.02)
        self.empty = nn.Parameter(torch.randn(width) * 0.02)

    def forward(self, batch: Batch) -> Tensor:
        """Reads `agents` (B, A, 50, 6), `agents_seen`, `agent_types`, `lines` (B, L, N, 2) and `line_types`."""
        agents_BAD = self.agent(_agent_features(batch["agents"]), batch["agents_seen"])
        agents_BAD = agents_BAD + self.agent_type(batch["agent_types"])
        is_target_A1 = torch.arange(agents_BAD.shape[1], device=agents_BAD.device)[:, None] == 0
        agents_BAD = agents_BAD + is_target_A1 * self.target
        every_point = torch.ones(batch["lines"].shape[:3], dtype=torch.bool, device=agents_BAD.device)
        lines_BLD = self.line(_line_features(batch["lines"]), every_point) + self.line_type(batch["line_types"])
        tokens = torch.cat([agents_BAD, lines_BLD], dim=1)
        there = torch.cat([batch["agent_types"], batch["line_types"]], dim=1) > 0
        return torch.where(there[..., None], tokens, self.empty.to(tokens.dtype))


class PointSet(nn.Module):
    """A set of points to one vector: each point by itself, the maximum, each again beside it, the maximum."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        half = width // 2
        self.first = nn.Sequential(nn.Linear(features, half), nn.LayerNorm(half), nn.GELU(), nn.Linear(half, half))
        self.second = nn.Sequential(nn.Linear(2 * half, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, width))

    def forward(self, points: Tensor, there: Tensor) -> Tensor:
        """Takes (…, N, features) and which of them are there (…, N); returns (…, D), zeros where none is."""
        alone = self.first(points)
        beside = torch.cat([alone, _largest(alone, there).unsqueeze(-2).expand_as(alone)], dim=-1)
        return _largest(self.second(beside), there)


def _largest(values: Tensor, there: Tensor) -> Tensor:
    masked = values.masked_fill(~there[..., None], -torch.inf).amax(dim=-2)
    return masked.masked_fill(~there.any(dim=-1)[..., None], 0.0)


def _agent_features(agents_BAT6: Tensor) -> Tensor:
    scale = agents_BAT6.new_tensor([*[POSITION_SCALE_M] * 2, 1.0, 1.0, *[SPEED_SCALE_MPS] * 2])
    steps = torch.arange(1 - OBSERVED_STEPS, 1, device=agents_BAT6.device, dtype=agents_BAT6.dtype) / OBSERVED_STEPS
    return torch.cat([agents_BAT6 / scale, steps[:, None].expand(*agents_BAT6.shape[:-1], 1)], dim=-1)


def _line_features(lines_BLN2: Tensor) -> Tensor:
    onward = torch.diff(lines_BLN2, dim=-2, append=lines_BLN2[..., -1:, :])
    return torch.cat([lines_BLN2 / POSITION_SCALE_M, onward], dim=-1)
