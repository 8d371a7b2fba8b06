"""How far a model's pictures and latents are from the true ones. Shapes: B clips, T frames, D numbers of a latent."""

import torch


def absolute_error(found: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Returns the mean absolute error of pictures of one shape."""
    return (found.float() - truth).abs().mean()


def absolute_error_of_steps(found: torch.Tensor, truth: torch.Tensor, ramp: float) -> torch.Tensor:
    """Returns the mean absolute error of (B, S, 3, H, W); step t of S, from 0, weighs 1 + (t / S) of `ramp` more."""
    steps = found.shape[1]
    weights = 1.0 + ramp * torch.arange(steps, device=found.device) / steps
    return ((found.float() - truth).abs().mean((0, 2, 3, 4)) * weights).mean()


def mean_square(latents: torch.Tensor) -> torch.Tensor:
    """Returns the mean square of latents."""
    return latents.float().square().mean()


def consistency(predicted: torch.Tensor, latents: torch.Tensor) -> torch.Tensor:
    """Returns the squared distance of predicted latents (B, T-1, D) to the encoder's (B, T, D) of the next frames.

    The encoder is not taught by it: else latents that never change would be the easiest to predict.
    """
    return (predicted.float() - latents[:, 1:].detach().float()).square().mean()
