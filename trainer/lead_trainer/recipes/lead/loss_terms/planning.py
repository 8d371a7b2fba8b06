"""Losses of the planner: route, waypoints, target speed."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.loss_terms.per_sample import full_precision
from lead_trainer.recipes.lead.network.planner import Plan


def planning_losses(
    config: LeadConfig, plan: Plan, batch: Mapping[str, Tensor], route: Tensor, waypoints: Tensor
) -> dict[str, Tensor]:
    """Returns the raw losses against `route` (B, N, 2), `waypoints` (B, M, 2), `target_speed` (B,) and `brake` (B,)."""
    error = (full_precision(plan.route) - route).abs()
    logits = full_precision(plan.target_speed_logits)
    speeds = two_hot(config, batch["target_speed"].to(logits.dtype), batch["brake"])
    losses = {
        "loss_spatial_route": error.mean() + error[:, -1].mean(),
        "loss_target_speed": F.cross_entropy(logits, speeds),
    }
    if plan.future_waypoints is not None:
        losses["loss_spatio_temporal_waypoints"] = (full_precision(plan.future_waypoints) - waypoints).abs().mean()
    return losses


def two_hot(config: LeadConfig, speed: Tensor, brake: Tensor) -> Tensor:
    """Returns (B, classes): `speed` (B,) in m/s shared between its two neighbouring classes; braking is class 0."""
    classes = speed.new_tensor(config.target_speed_classes)
    speed = torch.where(brake.bool(), classes[0], speed).clamp(classes[0], classes[-1])
    upper = torch.searchsorted(classes, speed, right=True).clamp(1, len(classes) - 1)
    low, high = classes[upper - 1], classes[upper]
    share = ((speed - low) / (high - low))[:, None]
    label = speed.new_zeros(len(speed), len(classes))
    return label.scatter(1, upper[:, None] - 1, 1 - share).scatter(1, upper[:, None], share)
