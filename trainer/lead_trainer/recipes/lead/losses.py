"""The training loss of the recipe: raw terms under LEAD's keys, weights that sum to 1, their weighted total.

Called by the recipe's step. Everything here runs in fp32, whatever the forward pass ran in.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lead_trainer.errors import BadConfig
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.data_sources import CARLA, NAVSIM, DataSource
from lead_trainer.recipes.lead.loss_terms.detection import center_net_losses
from lead_trainer.recipes.lead.loss_terms.pixels import bev_semantic_loss, depth_loss, semantic_loss
from lead_trainer.recipes.lead.loss_terms.planning import planning_losses
from lead_trainer.recipes.lead.loss_terms.radar import radar_loss
from lead_trainer.recipes.lead.model import Predictions

DEPTH_WEIGHT = 1e-5


@dataclass(frozen=True)
class LossReport:
    """The loss of one batch and what it is made of."""

    total: Tensor
    raw: dict[str, Tensor]  # by LEAD's key
    weights: dict[str, float]  # by LEAD's key, summing to 1

    @property
    def scaled(self) -> dict[str, Tensor]:
        """The terms that `total` sums."""
        return {key: self.weights[key] * loss for key, loss in self.raw.items()}


def raw_weights(config: LeadConfig) -> dict[str, float]:
    """Returns every term's weight before normalising; 0 where the config has no such head or the data no such label.

    As in LEAD, every data set in use adds its terms to the sum, also ones that it cannot label, and the planner adds
    all of its own, also those of outputs that are switched off.
    """
    planner = float(config.use_planning_decoder)
    weights: dict[str, float] = {}
    for source in config.sources:
        weights |= {f"{source.prefix}{key}": value for key, value in _perception_weights(config, source).items()}
    return weights | {
        "loss_spatio_temporal_waypoints": planner,
        "loss_target_speed": planner,
        "loss_spatial_route": planner,
    }


def source_of(config: LeadConfig, loss: str) -> DataSource:
    """Returns the data set whose labels a term of the loss is computed from; CARLA for the planner's terms."""
    named = {
        f"{source.prefix}{key}": source for source in config.sources for key in _perception_weights(config, source)
    }
    return named.get(loss, CARLA)


def _perception_weights(config: LeadConfig, source: DataSource) -> dict[str, float]:
    boxes, carla = float(config.detect_boxes), source is CARLA
    return {
        "loss_semantic": float(config.use_semantic and carla),
        "loss_depth": DEPTH_WEIGHT * (config.use_depth and carla),
        "loss_bev_semantic": float(config.use_bev_semantic),
        "loss_center_net_heatmap": boxes,
        "loss_center_net_wh": boxes,
        "loss_center_net_offset": boxes,
        "loss_center_net_yaw_class": boxes,
        "loss_center_net_yaw_res": boxes,
        "loss_center_net_velocity": boxes * (config.predicts_box_velocity and not config.LTF and carla),
        "radar_loss": float(config.detects_radar and carla),
    }


def loss_weights(config: LeadConfig) -> dict[str, float]:
    """Returns every term's weight, divided by their sum."""
    weights = raw_weights(config)
    total = sum(weights.values())
    return {key: weight / total for key, weight in weights.items()}


def compute_losses(config: LeadConfig, predictions: Predictions, batch: Mapping[str, Tensor]) -> LossReport:
    """Returns the loss of `predictions` against the labels in `batch`."""
    with torch.autocast(batch["source_dataset"].device.type, enabled=False):
        raw = _raw_losses(config, predictions, batch)
        if not raw:
            raise BadConfig(
                "use_planning_decoder: found false, but the data in use labels nothing but waypoints; set it"
            )
        weights = loss_weights(config)
        total = torch.stack([weights[key] * loss for key, loss in raw.items()]).sum()
        if predictions.depth is not None and "loss_depth" not in raw:
            total = total + 0 * predictions.depth.sum()  # DDP waits for the gradients of a head that has run
    return LossReport(total, raw, weights)


def _raw_losses(config: LeadConfig, predictions: Predictions, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    raw: dict[str, Tensor] = {}
    if predictions.semantic is not None:
        raw["loss_semantic"] = semantic_loss(predictions.semantic, batch)
    if predictions.depth is not None and (config.use_semantic or not config.compat.depth_with_semantic_alone):
        raw["loss_depth"] = depth_loss(config, predictions.depth, batch)
    if predictions.bev_semantic is not None:
        raw["loss_bev_semantic"] = bev_semantic_loss(config, predictions.bev_semantic, batch)
    if predictions.bev_semantic_navsim is not None:
        logits = predictions.bev_semantic_navsim
        raw["navsim_loss_bev_semantic"] = bev_semantic_loss(config, logits, batch, NAVSIM)
    if predictions.center_net is not None:
        raw.update(center_net_losses(predictions.center_net, batch))
    if predictions.center_net_navsim is not None:
        raw.update(center_net_losses(predictions.center_net_navsim, batch, NAVSIM))
    if predictions.radar is not None:
        labels = _label(config, predictions, batch["radar_detections"])
        raw["radar_loss"] = radar_loss(config, predictions.radar.predictions, batch, labels)
    if predictions.plan is not None:
        route = _label(config, predictions, batch["route"]) if "route" in batch else None
        waypoints = _label(config, predictions, batch["future_waypoints"])
        raw.update(planning_losses(config, predictions.plan, batch, route, waypoints))
    return raw


def _label(config: LeadConfig, predictions: Predictions, label: Tensor) -> Tensor:
    """Returns a label in metres in fp32, rounded to bf16 before where LEAD does so."""
    if config.compat.bf16_labels and predictions.autocast_dtype == torch.bfloat16:
        label = label.to(torch.bfloat16)
    return label.float()
