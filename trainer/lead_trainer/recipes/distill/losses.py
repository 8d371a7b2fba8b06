"""What a student is taught by: positions, yaw, the teacher's actions and the place of its reasoning.

Shapes: B batch, K modes, T steps. Every part is reported unweighted; their weights are the config's.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional

from lead_trainer.contract.samples import Batch
from lead_trainer.contract.step import Facts
from lead_trainer.recipes.distill.action_stats import stats_in
from lead_trainer.recipes.distill.config import MAX_ACCELERATION, MAX_CURVATURE, DistillConfig
from lead_trainer.recipes.distill.loss_terms.contrastive import info_nce
from lead_trainer.recipes.distill.loss_terms.modes import negative_log_mixture, winner_takes_all
from lead_trainer.recipes.distill.network.action_tokens import bin_of


@dataclass(frozen=True)
class LossReport:
    """The loss and its unweighted parts, each a scalar."""

    total: torch.Tensor
    parts: Mapping[str, torch.Tensor]


def compute_losses(
    config: DistillConfig,
    predictions: Mapping[str, torch.Tensor],
    batch: Batch,
    facts: Facts,
    reasoning_scale: float = 1.0,
) -> LossReport:
    """Returns the loss of a batch; `reasoning_scale` is how far the reasoning's weight has warmed up."""
    with torch.autocast(predictions["xy"].device.type, enabled=False):
        position_BK, yaw_BK = trajectory_errors(predictions, batch)
        choose = winner_takes_all if config.multimodal_loss == "wta" else negative_log_mixture
        parts = choose(position_BK, yaw_BK, predictions["logits"], batch["target_valid"].sum(-1))
        total = parts["position"] + config.yaw_weight * parts["yaw"] + parts.get("mode", 0.0)
        weight = action_weight(config)
        if weight:
            parts["action"] = action_loss(config, predictions, batch, facts)
            total = total + weight * parts["action"]
        if config.model == "reasoning":
            parts["reasoning"] = info_nce(
                predictions["embedding"], batch["embedding"], config.temperature, gather=config.gather_negatives
            )
            total = total + config.reasoning_weight * reasoning_scale * parts["reasoning"]
        return LossReport(total, parts)


def trajectory_errors(predictions: Mapping[str, torch.Tensor], batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns each mode's MSE of positions (mean of x and y, m²) and MSE of sin plus that of cos, each (B, K)."""
    valid = batch["target_valid"][:, None].float()
    steps = valid.sum(-1).clamp(min=1.0)
    target_yaw = batch["target_yaw"][:, None]
    sincos = torch.stack([torch.sin(target_yaw), torch.cos(target_yaw)], -1)
    position = (predictions["xy"] - batch["target_xy"][:, None]).square().mean(-1)
    yaw = (predictions["sincos"] - sincos).square().sum(-1)
    return (position * valid).sum(-1) / steps, (yaw * valid).sum(-1) / steps


def action_weight(config: DistillConfig) -> float:
    """Returns the weight of the actions' supervision; tokens always have one, because nothing else shapes bins."""
    return config.action_weight or float(config.discrete_actions)


def action_loss(
    config: DistillConfig, predictions: Mapping[str, torch.Tensor], batch: Batch, facts: Facts
) -> torch.Tensor:
    """Returns the MSE of actions in units of the labels' spread, or the bins' cross-entropy with label smoothing.

    Of several modes the one nearest to the target is supervised.
    """
    valid, target = batch["target_valid"], batch["actions"]
    if config.discrete_actions:
        bins = predictions["bins"][:, 0]
        loss = functional.cross_entropy(
            bins.flatten(0, 2), bin_of(target, config.num_action_bins).flatten(),
            label_smoothing=config.label_smoothing, reduction="none",
        ).view(target.shape)  # fmt: skip
    else:
        best = trajectory_errors(predictions, batch)[0].argmin(1)
        chosen = predictions["actions"][torch.arange(len(best), device=best.device), best]
        limits = target.new_tensor([MAX_ACCELERATION, MAX_CURVATURE])
        loss = ((chosen - target.clamp(-limits, limits)) / target.new_tensor(stats_in(facts))[1]).square()
    mean: torch.Tensor = (loss.mean(-1) * valid).sum() / valid.sum().clamp(min=1)
    return mean


def reasoning_scale(config: DistillConfig, epoch: int) -> float:
    """Returns how far the reasoning's weight has warmed up in an epoch (from 0): linearly, whole in the last one."""
    return min(1.0, (epoch + 1) / config.reasoning_warmup_epochs) if config.reasoning_warmup_epochs else 1.0
