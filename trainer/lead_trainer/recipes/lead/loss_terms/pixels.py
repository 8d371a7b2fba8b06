"""Losses of the dense heads: classes of pixels, depth, BEV classes."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.data_sources import CARLA, DataSource
from lead_trainer.recipes.lead.loss_terms.per_sample import (
    full_precision,
    mean_over,
    perception_samples,
    samples_of,
    unlabelled,
)
from lead_trainer.recipes.lead.network.bev_points import visible_bev


def semantic_loss(logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """Cross-entropy of every pixel's class; logits (B, classes, h, w) against `semantic` (B, h, w)."""
    if "semantic" not in batch:
        return unlabelled(logits)
    per_pixel = F.cross_entropy(full_precision(logits), batch["semantic"].long(), reduction="none")
    return mean_over(perception_samples(batch), per_pixel.mean(dim=(1, 2)))


def depth_loss(config: LeadConfig, depth: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """L1 in metres; depth (B, h, w) against `depth` (B, h, w)."""
    if "depth" not in batch:
        return unlabelled(depth)
    label = batch["depth"]
    if config.compat.integer_depth_labels:
        label = label.long()
    per_pixel = (full_precision(depth) - label).abs()
    return mean_over(perception_samples(batch), per_pixel.mean(dim=(1, 2)))


def bev_semantic_loss(
    config: LeadConfig, logits: Tensor, batch: Mapping[str, Tensor], source: DataSource = CARLA
) -> Tensor:
    """Cross-entropy of every BEV pixel in view; logits (B, classes, H, W) against a data set's `bev_semantic`."""
    label = batch.get(f"{source.prefix}bev_semantic")
    if label is None:
        return unlabelled(logits)
    per_pixel = F.cross_entropy(full_precision(logits), label.long(), reduction="none")
    visible = visible_bev(config, logits.device)
    seen = torch.where(visible, per_pixel, 0).sum(dim=(1, 2))
    pixels = visible.numel() if config.compat.diluted_bev_semantic else visible.sum()
    return mean_over(samples_of(batch, source), seen / pixels)
