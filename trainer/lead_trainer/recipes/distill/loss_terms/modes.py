"""Several modes, one truth: which mode learns how much. B batch, K modes; one mode is the plain loss in both."""

import torch
from torch.nn import functional


def winner_takes_all(
    position_BK: torch.Tensor, yaw_BK: torch.Tensor, logits_BK: torch.Tensor, steps_B: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Returns the errors of the mode nearest to the truth, and the cross-entropy of having named it."""
    best = position_BK.detach().argmin(1, keepdim=True)
    parts = {"position": position_BK.gather(1, best).mean(), "yaw": yaw_BK.gather(1, best).mean()}
    if position_BK.shape[1] > 1:
        parts["mode"] = functional.cross_entropy(logits_BK, best.squeeze(1))
    return parts


def negative_log_mixture(
    position_BK: torch.Tensor, yaw_BK: torch.Tensor, logits_BK: torch.Tensor, steps_B: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Returns -log of a mixture of Gaussians of 1 m around each mode's positions, a step, without the constant.

    A mode's squared distance summed over its valid steps is 2 · steps · position; yaw is weighted by how much each mode
    answers for the truth. For one mode this is the position's MSE, as in `winner_takes_all`.
    """
    steps = steps_B.clamp(min=1).float()[:, None]
    joint = functional.log_softmax(logits_BK, 1) - position_BK * steps
    answers = joint.detach().softmax(1)
    return {
        "position": (-torch.logsumexp(joint, 1) / steps[:, 0]).mean(),
        "yaw": (answers * yaw_BK).sum(1).mean(),
    }
