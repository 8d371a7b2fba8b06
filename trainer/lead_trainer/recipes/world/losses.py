"""What the world model minimises: errors of its pictures, and three terms that shape latents.

Every term is reported unweighted; a weight of 0 removes its term.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from lead_trainer.recipes.world.config import WorldConfig
from lead_trainer.recipes.world.loss_terms.pictures import (
    absolute_error,
    absolute_error_of_steps,
    consistency,
    mean_square,
)
from lead_trainer.recipes.world.model import Outputs


@dataclass(frozen=True)
class LossReport:
    """The loss and its unweighted terms by tag, each a scalar."""

    total: torch.Tensor
    parts: Mapping[str, torch.Tensor]


def compute_losses(
    config: WorldConfig, outputs: Outputs, images: torch.Tensor, perceptual: torch.nn.Module | None
) -> LossReport:
    """Returns the loss of what the model made of clips (B, T, 3, H, W) in [-1, 1].

    Terms of the prediction are there where the outputs hold predicted pictures. Else the loss is that of the
    reconstruction, and depends on the dynamics by nothing: every parameter keeps a gradient, as ranks expect.
    """
    terms, weights = {}, config.loss
    with torch.autocast(images.device.type, enabled=False):
        if weights.recon_weight:
            terms["recon_loss"] = weights.recon_weight, absolute_error(outputs["reconstructed"], images)
        if "predicted" in outputs:
            terms |= _of_prediction(config, outputs, images)
    if weights.perceptual_weight and perceptual is not None:
        pairs = outputs["reconstructed"].flatten(0, 1), images.flatten(0, 1)
        terms["perceptual_loss"] = weights.perceptual_weight, perceptual(*pairs)
    if weights.latent_reg_weight and config.model.encoder.latent_norm == "none":
        terms["latent_reg"] = weights.latent_reg_weight, mean_square(outputs["latents"])
    unused = 0.0 * outputs["predicted_latents"].sum() + 0.0 * outputs["reconstructed"].sum()
    total = sum((weight * term for weight, term in terms.values()), start=unused)
    return LossReport(total, {tag: term for tag, (_, term) in terms.items()})


def _of_prediction(
    config: WorldConfig, outputs: Outputs, images: torch.Tensor
) -> dict[str, tuple[float, torch.Tensor]]:
    terms, weights = {}, config.loss
    if weights.pred_weight:
        error = absolute_error_of_steps(outputs["predicted"], images[:, 1:], weights.pred_time_ramp)
        terms["pred_loss"] = weights.pred_weight, error
    if weights.temporal_weight:
        distance = consistency(outputs["predicted_latents"], outputs["latents"])
        terms["temporal_loss"] = weights.temporal_weight, distance
    if weights.latent_reg_weight and config.model.encoder.latent_norm == "batch":
        # The norm holds the encoder's latents at a mean square of 1, whatever a weight says.
        terms["latent_reg"] = weights.latent_reg_weight, mean_square(outputs["predicted_latents"])
    return terms
