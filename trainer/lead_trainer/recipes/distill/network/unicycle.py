"""Accelerations and curvatures to a trajectory: the unicycle of Alpamayo-R1 (arXiv 2511.00088), for torch tensors.

Shapes: `…` any leading axes, T steps, 2 = (acceleration m/s², curvature 1/m). The inverse is `ingest.actions`.
"""

import torch


def integrate(actions: torch.Tensor, speed: torch.Tensor, dt_s: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns positions (…, T, 2) in metres and yaw (…, T) in radians after each step, from the origin heading along x.

    `actions` is (…, T, 2), `speed` (…) m/s at the start. Speed is exact; the yaw of a step grows by curvature times the
    distance it covers; a position grows by the mean of the velocities before and after (trapezoid). Float32 throughout.
    """
    with torch.autocast(actions.device.type, enabled=False):
        acceleration, curvature = actions.float().unbind(-1)
        start = speed.float().unsqueeze(-1)
        after = start + torch.cumsum(acceleration, -1) * dt_s
        before = torch.cat([start.expand_as(after[..., :1]), after[..., :-1]], -1)
        yaw = torch.cumsum(curvature * (before * dt_s + 0.5 * acceleration * dt_s**2), -1)
        yaw_before = torch.cat([torch.zeros_like(yaw[..., :1]), yaw[..., :-1]], -1)
        velocity = _velocity(before, yaw_before) + _velocity(after, yaw)
        return torch.cumsum(0.5 * dt_s * velocity, -2), yaw


def _velocity(speed: torch.Tensor, yaw: torch.Tensor) -> torch.Tensor:
    return torch.stack([speed * torch.cos(yaw), speed * torch.sin(yaw)], -1)
