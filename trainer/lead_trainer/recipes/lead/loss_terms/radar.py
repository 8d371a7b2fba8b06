"""The loss of radar detections: predictions are matched to labels one to one, then compared."""

from collections.abc import Mapping

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn import functional as F

from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.loss_terms.per_sample import full_precision, mean_over, perception_samples


def radar_loss(config: LeadConfig, predictions: Tensor, batch: Mapping[str, Tensor], labels: Tensor) -> Tensor:
    """Returns 5 x L1 of position and speed over real objects + 1 x BCE of validity over all queries.

    `predictions` (B, Q, 4) = x, y, speed, validity logit; `labels` (B, Q, 4) = x, y, speed, valid. Distances are in
    parts of the BEV window and of the top speed.
    """
    predictions = full_precision(predictions)
    matched = match(config, predictions, labels)
    valid = matched[..., 3]
    distance = _scaled_l1(config, predictions, matched) * valid
    regression = distance.sum(dim=1) / valid.sum(dim=1).clamp(min=1)
    classification = F.binary_cross_entropy_with_logits(predictions[..., 3], valid, reduction="none").mean(dim=1)
    per_sample = (
        config.radar_regression_loss_weight * regression + config.radar_classification_loss_weight * classification
    )
    samples = perception_samples(batch)
    if config.compat.unmasked_radar_loss:
        samples = torch.ones_like(samples)
    return mean_over(samples, per_sample)


def match(config: LeadConfig, predictions: Tensor, labels: Tensor) -> Tensor:
    """Returns `labels` (B, Q, 4) reordered so that row i belongs to prediction i, at the least total cost.

    Predictions that are not numbers match anything: the loss stays NaN and the loop skips the update.
    """
    cost = torch.nan_to_num(matching_cost(config, predictions.detach(), labels)).cpu().numpy()
    order = torch.stack([torch.from_numpy(linear_sum_assignment(sample)[1]) for sample in cost])
    return labels.gather(1, order.to(labels.device)[..., None].expand_as(labels))


def matching_cost(config: LeadConfig, predictions: Tensor, labels: Tensor) -> Tensor:
    """Returns the cost (B, Q, Q) of each prediction (rows) against each label; padding labels cost their BCE alone."""
    predictions, labels = predictions[:, :, None], labels[:, None]
    valid = labels[..., 3].expand(-1, predictions.shape[1], -1)
    logits = predictions[..., 3].expand_as(valid)
    classification = F.binary_cross_entropy_with_logits(logits, valid, reduction="none")
    regression = _scaled_l1(config, predictions, labels) * valid
    return config.radar_regression_loss_weight * regression + config.radar_classification_loss_weight * classification


def _scaled_l1(config: LeadConfig, predictions: Tensor, labels: Tensor) -> Tensor:
    scale = labels.new_tensor((config.lidar_width_meter, config.lidar_height_meter, config.max_speed))
    return ((predictions[..., :3] - labels[..., :3]) / scale).abs().sum(dim=-1)
