"""What is measured on the validation split: losses, PSNR and SSIM beside baselines, and a Fréchet distance."""

from collections.abc import Mapping

import torch
from torch import nn
from torchmetrics.image.fid import FrechetInceptionDistance

from lead_trainer.contract.samples import Batch
from lead_trainer.contract.step import Facts, StepContext
from lead_trainer.contract.validation import Evaluation
from lead_trainer.recipes.world.config import WorldConfig
from lead_trainer.recipes.world.losses import compute_losses
from lead_trainer.recipes.world.metrics import latent_spread, picture_totals
from lead_trainer.recipes.world.model import WorldModel
from lead_trainer.recipes.world.pictures import rollout_clip, validation_samples

FEATURES = "latent_frechet"


class _AsTheyAre(nn.Module):
    """Features that need no network, for torchmetrics' distance."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features


class FeatureDistance(FrechetInceptionDistance):
    """The Fréchet distance of two sets of features (N, D): `update(features, real=…)`. It is no FID and no FVD.

    Those need the features of published networks; these are the encoder's own, so only weights of one run compare.
    """

    def __init__(self, width: int) -> None:
        super().__init__(feature=_AsTheyAre(width))


def metrics(config: WorldConfig, facts: Facts) -> Mapping[str, FeatureDistance]:
    """Returns the distance of predicted latents to the encoder's, `val/latent_frechet`."""
    return {FEATURES: FeatureDistance(config.model.latent_dim)}


def evaluate(model: nn.Module, batch: Batch, context: StepContext[WorldConfig]) -> Evaluation:
    """Returns what one validation batch adds; pictures of the first one."""
    assert isinstance(model, WorldModel)
    config, images, actions = context.config, batch["images"], batch["actions"]
    outputs = model(images, actions)
    report, clips = compute_losses(config, outputs, images, context.helpers), len(images)
    distance = context.metrics[FEATURES]
    distance.update(outputs["latents"][:, 1:].flatten(0, 1), real=True)
    distance.update(outputs["predicted_latents"].flatten(0, 1).float(), real=False)
    losses = {"loss": report.total, **report.parts, "latent_spread": latent_spread(outputs["latents"])}
    pictures = {}
    if not context.micro_batch:
        first = config.logging.rollout_context
        rollout = model.rollout(images[:1, :first], actions[:1]).pictures[0]
        pictures = {
            "val/samples": validation_samples(outputs, images, config.logging.num_samples),
            "val/rollout": rollout_clip(images[0, 1:], rollout),
        }
    totals = {tag: (value.double() * clips, clips) for tag, value in losses.items()}
    return Evaluation({**totals, **picture_totals(outputs, images, context.facts)}, pictures=pictures)
