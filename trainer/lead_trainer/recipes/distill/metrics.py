"""How far a student's likeliest trajectory is from the truth. Shapes: B batch, K modes, T steps."""

import math
from collections.abc import Mapping

import torch

from lead_trainer.contract.samples import Batch
from lead_trainer.metrics.displacement import angle_error
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.distill.modes import Totals

ACTIONS = ("accel", "curvature")


def trajectory_totals(predictions: Mapping[str, torch.Tensor], batch: Batch) -> Totals:
    """Returns sums of `ade`, `fde` (m), `yaw_error` and `final_yaw_error` (degrees) over the samples with a truth.

    ADE is the mean distance over the valid steps, FDE that of the last valid one; the likeliest mode counts.
    """
    rows = torch.arange(len(batch["target_xy"]), device=batch["target_xy"].device)
    likeliest = predictions["logits"].argmax(1)
    distance = (predictions["xy"][rows, likeliest] - batch["target_xy"]).norm(dim=-1)
    yaw = angle_error(predictions["yaw"][rows, likeliest], batch["target_yaw"]) * (180.0 / math.pi)
    valid = batch["target_valid"]
    steps = valid.sum(1)
    last = (valid * torch.arange(1, valid.shape[1] + 1, device=valid.device)).argmax(1)
    counted = steps > 0

    def mean(values: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = ((values * valid).sum(1) / steps.clamp(min=1)).sum()
        return total

    return {
        "ade": (mean(distance), counted.sum()),
        "fde": ((distance[rows, last] * counted).sum(), counted.sum()),
        "yaw_error": (mean(yaw), counted.sum()),
        "final_yaw_error": ((yaw[rows, last] * counted).sum(), counted.sum()),
    }


def action_totals(config: DistillConfig, predictions: Mapping[str, torch.Tensor]) -> Totals:
    """Returns sums and sums of squares of the likeliest mode's actions, for `with_spreads` to finish."""
    actions = likeliest_actions(config, predictions)
    if actions is None:
        return {}
    count = len(actions)
    totals: dict[str, tuple[torch.Tensor, torch.Tensor | int]] = {}
    for index, name in enumerate(ACTIONS):
        values = actions[:, index]
        totals[f"{name}_mean"] = (values.sum(), count)
        totals[f"{name}_square"] = (values.square().sum(), count)
    return totals


def action_ends(config: DistillConfig, predictions: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns the greatest actions as `<name>_max` and the smallest, negated, as `<name>_negated_min`."""
    actions = likeliest_actions(config, predictions)
    if actions is None:
        return {}
    ends = {f"{name}_max": actions[:, index].max() for index, name in enumerate(ACTIONS)}
    return ends | {f"{name}_negated_min": (-actions[:, index]).max() for index, name in enumerate(ACTIONS)}


def likeliest_actions(config: DistillConfig, predictions: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """Returns the actions of the likeliest modes, (B * T, 2), None where nobody asks for them or there are none."""
    if not (config.log_action_stats and config.unicycle):
        return None
    rows = torch.arange(len(predictions["actions"]), device=predictions["actions"].device)
    return predictions["actions"][rows, predictions["logits"].argmax(1)].flatten(0, 1).float()


def with_spreads(means: Mapping[str, float]) -> dict[str, float]:
    """Returns the means with `<name>_std` in place of `<name>_square`, `<name>_min` of `<name>_negated_min`."""
    summary = {tag: value for tag, value in means.items() if not tag.endswith(("_square", "_negated_min"))}
    for tag in means:
        if tag.endswith("_negated_min"):
            summary[tag.replace("_negated_min", "_min")] = -means[tag]
        if tag.endswith("_square"):
            name = tag.removesuffix("_square")
            summary[f"{name}_std"] = math.sqrt(max(means[tag] - means[f"{name}_mean"] ** 2, 0.0))
    return summary
