"""Losses of the planner: route, waypoints, target speed."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.loss_terms.per_sample import full_precision, mean_over, perception_samples, unlabelled
from lead_trainer.recipes.lead.network.planner import Plan


def planning_losses(
    config: LeadConfig,
    plan: Plan,
    batch: Mapping[str, Tensor],
    route: Tensor | None,
    waypoints: Tensor,
) -> dict[str, Tensor]:
    """Returns the raw losses against `route` (B, N, 2), `waypoints` (B, M, 2), `target_speed` (B,) and `brake` (B,).

    Every data set has waypoints; only CARLA has routes and target speeds. With NavSim, headings join the waypoints.
    """
    losses: dict[str, Tensor] = {}
    whole = config.carla_leaderboard_mode  # every sample has every label: no mask, in LEAD's order of sums
    carla = perception_samples(batch)
    if plan.route is not None:
        if route is None:
            losses["loss_spatial_route"] = unlabelled(plan.route)
        else:
            error = (full_precision(plan.route) - route).abs()
            per_sample = error.mean(dim=(1, 2)) + error[:, -1].mean(dim=1)
            losses["loss_spatial_route"] = error.mean() + error[:, -1].mean() if whole else mean_over(carla, per_sample)
    if plan.target_speed_logits is not None:
        logits = full_precision(plan.target_speed_logits)
        if "target_speed" not in batch:
            losses["loss_target_speed"] = unlabelled(logits)
        else:
            speeds = two_hot(config, batch["target_speed"].to(logits.dtype), batch["brake"])
            per_sample = F.cross_entropy(logits, speeds, reduction="none")
            losses["loss_target_speed"] = per_sample.mean() if whole else mean_over(carla, per_sample)
    if plan.future_waypoints is not None:
        loss = (full_precision(plan.future_waypoints) - waypoints).abs().mean()
        if plan.headings is not None and "future_yaws" not in batch:
            loss = loss + unlabelled(plan.headings)
        elif plan.headings is not None:
            loss = loss + (full_precision(plan.headings) - batch["future_yaws"].to(loss.dtype)).abs().mean()
        losses["loss_spatio_temporal_waypoints"] = loss
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
