"""Ways of agents: what the grid shows around each, who is near, and K ways with how sure each is.

A way is what is left of going on at the present velocity, in the agent's own frame: whoever learns nothing predicts a
constant velocity. The ego goes first in every sample; its way is there for planners, and is taught on request alone.
"""

from collections.abc import Mapping

import torch
from torch import nn

from lead_trainer.recipes.nuplan.data_keys import CLASSES, DataKeys
from lead_trainer.recipes.nuplan.model_keys import ModelKeys
from lead_trainer.recipes.nuplan.network.box_code import Agents
from lead_trainer.recipes.nuplan.network.grid import read_at

READ_AT_M = (-4.0, 0.0, 4.0, 8.0, 16.0)  # along the heading, where the grid is read
EGO, EGO_SIZE_M = len(CLASSES), (5.2, 2.3)  # nuPlan's Pacifica
NUMBERS = 6  # of a step: x, y, heading, speed, log sigma of x and y
LOG_SIGMAS = (-3.0, 5.0)
SPEED = 10.0  # m/s, of about 1
NEARLY_NOTHING = 1e-3  # standard deviation of the last weights at first: modes differ, ways are nearly straight
Ways = Mapping[str, torch.Tensor]


class WayHead(nn.Module):
    """Maps agents (B, A) and the ego to ways (B, 1 + A, K, T, …), the ego's first.

    `places` (…, 2) m in the vehicle's frame, `log_sigma` (…, 2) of them, `headings` and `speeds` (…); `mode_scores`
    (B, 1 + A, K) are logits.
    """

    def __init__(self, keys: ModelKeys, data: DataKeys) -> None:
        super().__init__()
        self.range_m, self.modes, self.steps = data.range_m, keys.modes, data.future_steps
        self.step_s = data.future_step_s
        width = keys.actor_width
        own = 4 + 4 + len(CLASSES) + 1  # size, own velocity; place, heading; kind
        self.enter = nn.Sequential(
            nn.Linear(own + len(READ_AT_M) * keys.bev_channels, width), nn.LayerNorm(width), nn.ReLU(),
            nn.Linear(width, width),
        )  # fmt: skip
        layer = nn.TransformerEncoderLayer(
            width, keys.actor_heads, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.attention = (
            nn.TransformerEncoder(layer, keys.actor_layers, enable_nested_tensor=False) if keys.actor_layers else None
        )
        self.leave = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU())
        self.steps_of_modes = nn.Linear(width, self.modes * self.steps * NUMBERS)
        nn.init.normal_(self.steps_of_modes.weight, std=NEARLY_NOTHING)
        nn.init.zeros_(self.steps_of_modes.bias)
        self.score = nn.Linear(width, self.modes)

    def forward(self, grid: torch.Tensor, agents: Agents, ego_state: torch.Tensor) -> Ways:
        """Returns the ways on a grid (B, C, G, G); ego_state (B, 4) begins with its velocity."""
        boxes, kinds, valid = with_ego(agents, ego_state)
        known = self.enter(torch.cat([self._own(boxes, kinds), self._seen(grid, boxes)], -1))
        if self.attention is not None:
            known = self.attention(known, src_key_padding_mask=~valid)
        left = self.leave(known)
        numbers = self.steps_of_modes(left).float().unflatten(-1, (self.modes, self.steps, NUMBERS))
        return {**self._ways(boxes, numbers), "mode_scores": self.score(left).float()}

    def _own(self, boxes: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        yaw = boxes[..., 4:5]
        velocity = _turned(boxes[..., 5:7], -boxes[..., 4])
        is_kind = nn.functional.one_hot(kinds, len(CLASSES) + 1).to(boxes.dtype)
        place = boxes[..., :2] / self.range_m
        return torch.cat([boxes[..., 2:4] / 5.0, velocity / SPEED, place, yaw.sin(), yaw.cos(), is_kind], -1)

    def _seen(self, grid: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        yaw = boxes[..., 4]
        ahead = torch.stack([yaw.cos(), yaw.sin()], -1)
        places = boxes[..., None, :2] + ahead[..., None, :] * boxes.new_tensor(READ_AT_M)[:, None]
        found = read_at(grid.float(), places.flatten(1, 2), self.range_m)
        return found.reshape(*places.shape[:2], -1)

    def _ways(self, boxes: torch.Tensor, numbers: torch.Tensor) -> dict[str, torch.Tensor]:
        going_on = straight_on(boxes, self.steps, self.step_s)[..., None, :, :]
        yaw = boxes[..., None, None, 4]
        return {
            "places": going_on + _turned(numbers[..., :2], yaw.expand(numbers.shape[:-1])),
            "headings": yaw + numbers[..., 2],
            "speeds": boxes[..., None, None, 5:7].norm(dim=-1) + numbers[..., 3],
            "log_sigma": numbers[..., 4:].clamp(*LOG_SIGMAS),
        }


def with_ego(agents: Agents, ego_state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns boxes (B, 1 + A, 7), kinds and valid (B, 1 + A) with the ego first."""
    ego = torch.zeros_like(agents.boxes[:, :1])
    ego[:, 0, 2:4] = ego.new_tensor(EGO_SIZE_M)
    ego[:, 0, 5:7] = ego_state[:, :2].to(ego.dtype)
    here = torch.ones_like(agents.valid[:, :1])
    kinds = torch.where(agents.valid, agents.kinds, 0)
    boxes = torch.where(agents.valid[..., None], agents.boxes, 0.0)
    return (
        torch.cat([ego, boxes], 1),
        torch.cat([torch.full_like(kinds[:, :1], EGO), kinds], 1),
        torch.cat([here, agents.valid], 1),
    )


def straight_on(boxes: torch.Tensor, steps: int, step_s: float) -> torch.Tensor:
    """Returns the places (..., T, 2) of boxes (..., 7) that keep their velocity."""
    times = torch.arange(1, steps + 1, device=boxes.device, dtype=boxes.dtype) * step_s
    return boxes[..., None, :2] + boxes[..., None, 5:7] * times[:, None]


def _turned(vectors: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    """Returns vectors (..., 2) turned to the left by angles (...)."""
    cos, sin, (x, y) = angle.cos(), angle.sin(), vectors.unbind(-1)
    return torch.stack([cos * x - sin * y, sin * x + cos * y], -1)
