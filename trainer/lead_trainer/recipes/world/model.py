"""The world model: what a camera will show, from what it has shown and from what the driver does.

Shapes: B clips, T frames, D numbers of a latent. `build_world_model(config)` is its name in the training guide.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from lead_trainer.recipes.world.config import WorldConfig
from lead_trainer.recipes.world.network.decoder import Decoder
from lead_trainer.recipes.world.network.dynamics import Dynamics
from lead_trainer.recipes.world.network.encoder import Encoder

PARTS = ("encoder", "dynamics", "decoder")

Outputs = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Rollout:
    """An open-loop prediction: `pictures` (B, S, 3, H, W) in [-1, 1] and `latents` (B, S, D) after each action."""

    pictures: torch.Tensor
    latents: torch.Tensor


class WorldModel(nn.Module):
    """Encoder, dynamics and decoder; nothing else has parameters."""

    def __init__(self, config: WorldConfig) -> None:
        super().__init__()
        self.encoder = Encoder(config.model)
        self.dynamics = Dynamics(config.model)
        self.decoder = Decoder(config.model)

    def forward(self, images: torch.Tensor, actions: torch.Tensor, *, predict: bool = True) -> Outputs:
        """Returns what is reconstructed and predicted of clips (B, T, 3, H, W) in [-1, 1] and actions (B, T-1, A).

        `reconstructed` (B, T, 3, H, W), `latents` (B, T, D), `predicted_latents` (B, T-1, D): each from the true latent
        before it. `predicted` (B, T-1, 3, H, W) are their pictures, absent where `predict` is false. Raises ValueError
        for other shapes.
        """
        clips, frames = images.shape[:2]
        if actions.shape[:2] != (clips, frames - 1):
            raise ValueError(
                f"actions: found shape {tuple(actions.shape)}, expected ({clips}, {frames - 1}, …): one for each step "
                f"between the {frames} frames of {clips} clips"
            )
        latents = self.encoder(images.flatten(0, 1)).unflatten(0, (clips, frames))
        guessed = self.dynamics(latents, actions, context=frames)
        found = {"latents": latents, "predicted_latents": guessed, "reconstructed": self._pictures(latents)}
        return {**found, "predicted": self._pictures(guessed)} if predict else found

    def rollout(self, images: torch.Tensor, actions: torch.Tensor) -> Rollout:
        """Predicts in open loop, from context frames (B, C, 3, H, W) and actions (B, S, A) with S >= C.

        The first C steps start from true frames, the others from what was predicted before.
        """
        clips, context = images.shape[:2]
        latents = self.encoder(images.flatten(0, 1)).unflatten(0, (clips, context))
        guessed = self.dynamics(latents, actions, context=context)
        return Rollout(self._pictures(guessed), guessed)

    def enable_gradient_checkpointing(self) -> None:
        """Keeps only the input of each stage of encoder and decoder, and runs the stage again for its gradients."""
        self.encoder.recompute = self.decoder.recompute = True

    def _pictures(self, latents: torch.Tensor) -> torch.Tensor:
        pictures: torch.Tensor = self.decoder(latents.flatten(0, 1)).unflatten(0, latents.shape[:2])
        return pictures


def build_model(config: WorldConfig) -> WorldModel:
    """Returns a world model with fresh weights."""
    return WorldModel(config)


def build_world_model(config: WorldConfig | Mapping[str, Any]) -> WorldModel:
    """Returns a world model with fresh weights, as the training guide calls it; a mapping holds keys of KEYS.md.

    Raises pydantic's ValidationError for a mapping with a wrong key, TypeError for what is neither.
    """
    if isinstance(config, Mapping):
        config = WorldConfig.model_validate(config)
    if not isinstance(config, WorldConfig):
        raise TypeError(
            f"build_world_model: found {type(config).__name__}, expected a WorldConfig or a mapping of its keys, such "
            "as {'model': {'latent_dim': 256}}"
        )
    return build_model(config)


def parameter_counts(model: nn.Module) -> dict[str, int]:
    """Returns the parameters of each part and their `total`."""
    counts = {name: sum(one.numel() for one in part.parameters()) for name, part in model.named_children()}
    return {**counts, "total": sum(counts.values())}
