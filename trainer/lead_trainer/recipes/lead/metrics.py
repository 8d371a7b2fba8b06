"""How good a batch's predictions are, under LEAD's tags; every value is a scalar tensor without gradient."""

from collections.abc import Mapping

import torch
from torch import Tensor

from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.loss_terms.radar import match
from lead_trainer.recipes.lead.model import Predictions
from lead_trainer.recipes.lead.network.planner import Plan


def average_displacement(prediction: Tensor, label: Tensor) -> Tensor:
    """Returns the mean distance in metres of points (B, N, 2)."""
    distance: Tensor = torch.linalg.vector_norm(prediction - label, dim=-1)
    return distance.mean()


def final_displacement(prediction: Tensor, label: Tensor) -> Tensor:
    """Returns the mean distance in metres of the last of points (B, N, 2)."""
    return average_displacement(prediction[:, -1:], label[:, -1:])


def heading_distance(prediction: Tensor, label: Tensor) -> Tensor:
    """Returns the mean over samples of the Euclidean length of N errors (B, N) in radians, as LEAD's tag has it."""
    return average_displacement(prediction, label)


def correlation(first: Tensor, second: Tensor) -> Tensor:
    """Returns Pearson's coefficient of two (B,) tensors; 0 where one of them does not vary."""
    first, second = first - first.mean(), second - second.mean()
    norm = first.norm() * second.norm()
    return torch.where(norm > 0, (first * second).sum() / norm.clamp(min=1e-12), 0)


@torch.no_grad()
def compute_metrics(config: LeadConfig, predictions: Predictions, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the batch's metrics for the heads that the config has."""
    metrics: dict[str, Tensor] = {}
    with torch.autocast(batch["source_dataset"].device.type, enabled=False):
        if predictions.radar is not None:
            metrics.update(_radar(config, predictions.radar.predictions.float(), batch["radar_detections"].float()))
        if predictions.plan is not None:
            metrics.update(_plan(config, predictions.plan, batch))
    return metrics


def _radar(config: LeadConfig, predictions: Tensor, labels: Tensor) -> dict[str, Tensor]:
    matched = match(config, predictions, labels)
    valid = matched[..., 3] > 0.5
    error = (predictions - matched).where(valid[..., None], predictions.new_zeros(()))
    count = valid.sum().clamp(min=1)
    found = predictions[..., 3] > 0
    return {
        "metric/radar_distance_error": error[..., :2].norm(dim=-1).sum() / count,
        "metric/radar_vel_error": error[..., 2].abs().sum() / count,
        "metric/radar_classification_f1": 2 * (found & valid).sum() / (found.sum() + valid.sum()).clamp(min=1),
    }


def _plan(config: LeadConfig, plan: Plan, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    metrics: dict[str, Tensor] = {}
    if plan.route is not None:
        route, label = plan.route.float(), batch["route"].float()
        metrics["metric/route_ade"] = average_displacement(route, label)
        metrics["metric/route_fde"] = final_displacement(route, label)
    if plan.target_speed is not None:
        speed, wanted = plan.target_speed.float(), batch["target_speed"].float()
        slowest, fastest = config.target_speed_classes[0], config.target_speed_classes[-1]
        wanted = wanted.clamp(slowest, fastest).where(~batch["brake"].bool(), wanted.new_tensor(slowest))
        metrics["metric/target_speed_error"] = (speed - wanted).abs().mean()
        metrics["metric/target_speed_correlation"] = correlation(speed, wanted)
    if plan.future_waypoints is not None:
        waypoints, label = plan.future_waypoints.float(), batch["future_waypoints"].float()
        metrics["metric/waypoints_ade"] = average_displacement(waypoints, label)
        metrics["metric/waypoints_fde"] = final_displacement(waypoints, label)
    if plan.headings is not None and "future_yaws" in batch:
        metrics["metric/heading_ade"] = heading_distance(plan.headings.float(), batch["future_yaws"].float())
    return metrics
