"""What the model minimises: the losses of four tasks, weighted by fixed or learned weights.

A task is left out of the sum where its weight is 0 or where no sample of the batch has its label. Every term is
reported unweighted. Losses are computed in float32.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from lead_trainer.contract.samples import Batch
from lead_trainer.recipes.nuplan.config import NuplanConfig
from lead_trainer.recipes.nuplan.data_keys import TASKS
from lead_trainer.recipes.nuplan.loss_terms.boxes import box_distance, centre_focal
from lead_trainer.recipes.nuplan.loss_terms.centres import centre_heat
from lead_trainer.recipes.nuplan.loss_terms.grids import known_cross_entropy, layer_cross_entropy, layer_dice
from lead_trainer.recipes.nuplan.loss_terms.ways import WayLosses, best_mode, of_mode, way_losses
from lead_trainer.recipes.nuplan.loss_terms.weighting import fixed_sum, learned_sum
from lead_trainer.recipes.nuplan.model import Outputs
from lead_trainer.recipes.nuplan.network.box_code import at_cells, encoded

Terms = dict[str, torch.Tensor]


@dataclass(frozen=True)
class LossReport:
    """The loss, and its unweighted terms by tag, each a scalar: of tasks `<task>_loss`, and what they consist of."""

    total: torch.Tensor
    parts: Mapping[str, torch.Tensor]


def compute_losses(
    config: NuplanConfig, outputs: Outputs, batch: Batch, log_variances: Mapping[str, torch.Tensor]
) -> LossReport:
    """Returns the loss of a batch; `log_variances` by task where weights are learned."""
    with torch.autocast(outputs["heat"].device.type, enabled=False):
        labelled = dict(zip(TASKS, batch["labelled"].unbind(1), strict=True))
        makers = {
            "detection": _detection, "segmentation": _segmentation,
            "occupancy": _occupancy, "prediction": _prediction,
        }  # fmt: skip
        parts: Terms = {}
        for task, make in makers.items():
            if config.loss.task_weights[task] or config.loss.weighting == "learned":
                parts |= make(config, outputs, batch, labelled[task])
        tasks = {task: parts[f"{task}_loss"] for task in TASKS if f"{task}_loss" in parts}
        total = sum((0.0 * value.sum() for value in outputs.values()), start=outputs["heat"].new_zeros(()))
        total = total + sum(0.0 * value for value in log_variances.values())  # every rank has every gradient
        if tasks and config.loss.weighting == "learned":
            total = total + learned_sum(tasks, log_variances)
        elif tasks:
            total = total + fixed_sum(tasks, config.loss.task_weights)
        if config.loss.imitation and (term := _imitation(config, outputs, batch)) is not None:
            parts["imitation_loss"] = term
            total = total + config.loss.imitation_weight * term
    return LossReport(total, parts)


def _detection(config: NuplanConfig, outputs: Outputs, batch: Batch, labelled: torch.Tensor) -> Terms:
    if not bool(labelled.any()):
        return {}
    range_m, cells = config.data.range_m, config.data.grid_cells
    code, number, inside = encoded(batch["boxes"], range_m, cells)
    shown = batch["agent_valid"] & inside & labelled[:, None]
    heat = centre_heat(batch["boxes"], batch["box_class"], shown, number, range_m, cells)
    focal = centre_focal(outputs["heat"], heat, labelled)
    distance = box_distance(at_cells(outputs["boxes"], number), code, shown)
    total = focal + config.loss.box_weight * distance
    return {"detection_loss": total, "heat_loss": focal, "box_loss": distance}


def _segmentation(config: NuplanConfig, outputs: Outputs, batch: Batch, labelled: torch.Tensor) -> Terms:
    if not bool(labelled.any()):
        return {}
    pair = outputs["layers"], batch["layers"]
    entropy, dice = layer_cross_entropy(*pair, labelled), layer_dice(*pair, labelled)
    return {
        "segmentation_loss": entropy + config.loss.dice_weight * dice,
        "layer_bce_loss": entropy,
        "layer_dice_loss": dice,
    }


def _occupancy(config: NuplanConfig, outputs: Outputs, batch: Batch, labelled: torch.Tensor) -> Terms:
    known = batch["known"].bool() & labelled[:, None, None]
    if not bool(known.any()):
        return {}
    return {"occupancy_loss": known_cross_entropy(outputs["occupied"], batch["occupied"], known)}


def _prediction(config: NuplanConfig, outputs: Outputs, batch: Batch, labelled: torch.Tensor) -> Terms:
    counted = batch["agent_valid"] & batch["future_valid"].any(2) & labelled[:, None]
    if not bool(counted.any()):
        return {}
    agents = {name: outputs[name][:, 1:][counted] for name in ("places", "headings", "speeds", "log_sigma")}
    scores = outputs["mode_scores"][:, 1:][counted]
    future, valid = batch["futures"][counted], batch["future_valid"][counted]
    found = way_losses(agents["places"], agents["log_sigma"], scores, future[..., :2], valid)
    motion = _motion(agents, future, valid)
    return {
        "prediction_loss": _weighted(config, found) + config.loss.motion_weight * motion,
        "nll_loss": found.nll, "ade_loss": found.ade, "fde_loss": found.fde, "mode_loss": found.modes,
        "motion_loss": motion,
    }  # fmt: skip


def _weighted(config: NuplanConfig, found: WayLosses) -> torch.Tensor:
    keys = config.loss
    return (
        keys.nll_weight * found.nll
        + keys.ade_weight * found.ade
        + keys.fde_weight * found.fde
        + keys.mode_weight * found.modes
    )


def _motion(agents: Outputs, future: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """Returns 1 - cosine of the heading's error plus the speed's absolute error of the best mode, over valid steps."""
    best = best_mode(agents["places"], future[..., :2], valid)
    turned = 1 - torch.cos(of_mode(agents["headings"], best) - future[..., 2])
    faster = (of_mode(agents["speeds"], best) - future[..., 3]).abs()
    return torch.where(valid, turned + faster, 0.0).sum() / valid.sum().clamp(min=1)


def _imitation(config: NuplanConfig, outputs: Outputs, batch: Batch) -> torch.Tensor | None:
    """Returns the loss of the ego's own way, None where no sample has one."""
    counted = batch["ego_future_valid"].any(1)
    if not bool(counted.any()):
        return None
    ego = {name: outputs[name][:, 0][counted] for name in ("places", "log_sigma", "mode_scores")}
    future, valid = batch["ego_future"][counted], batch["ego_future_valid"][counted]
    return _weighted(config, way_losses(ego["places"], ego["log_sigma"], ego["mode_scores"], future[..., :2], valid))
