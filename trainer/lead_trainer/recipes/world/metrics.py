"""How good pictures are: PSNR and SSIM on [0, 1], and what a model must beat. Shapes: B clips, S steps.

PSNR of a clip is the mean over its frames, not that of their pooled error. A model above one baseline alone may have
learnt nothing: copying the last frame is beaten by always showing the mean picture of the training set.
"""

import torch
from torchmetrics.functional.image import peak_signal_noise_ratio, structural_similarity_index_measure

from lead_trainer.contract.step import Facts
from lead_trainer.recipes.world.mean_picture import mean_picture_of
from lead_trainer.recipes.world.model import Outputs
from lead_trainer.recipes.world.pixels import unit

MOST_DB = 100.0  # of equal pictures, whose PSNR is infinite
Totals = dict[str, tuple[torch.Tensor, torch.Tensor | int]]
BASELINES = ("copy_last", "mean_picture", "one_colour")


def psnr(found: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Returns the PSNR, dB, of each of the pictures (..., 3, H, W) in [0, 1]: shape (...)."""
    each = peak_signal_noise_ratio(
        found.flatten(0, -4), truth.flatten(0, -4), data_range=1.0, dim=(1, 2, 3), reduction="none"
    )
    return each.clamp(max=MOST_DB).view(found.shape[:-3])


def ssim(found: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Returns the structural similarity of each of the pictures (..., 3, H, W) in [0, 1]: shape (...)."""
    each = structural_similarity_index_measure(
        found.flatten(0, -4), truth.flatten(0, -4), data_range=1.0, reduction="none"
    )
    assert isinstance(each, torch.Tensor)
    return each.view(found.shape[:-3])


def latent_spread(latents: torch.Tensor) -> torch.Tensor:
    """Returns the mean over numbers of their standard deviation over pictures (..., D); near 0 all look the same."""
    return latents.detach().float().flatten(0, -2).std(0, correction=0).mean()


@torch.no_grad()
def training_metrics(outputs: Outputs, images: torch.Tensor, clips: int) -> dict[str, torch.Tensor]:
    """Returns the guide's scalars of a training step by their whole tags, of the first `clips` clips."""
    found, truth = unit(outputs["reconstructed"][:clips]), unit(images[:clips])
    metrics = {"train/psnr": psnr(found, truth).mean(), "train/ssim": ssim(found, truth).mean()}
    if "predicted" in outputs:
        metrics["train/pred_psnr"] = psnr(unit(outputs["predicted"][:clips]), truth[:, 1:]).mean()
    return {**metrics, "metric/latent_spread": latent_spread(outputs["latents"])}


def picture_totals(outputs: Outputs, images: torch.Tensor, facts: Facts) -> Totals:
    """Returns the sums over frames of a validation batch, and their numbers: of the model and of the baselines."""
    truth, found, guessed = unit(images), unit(outputs["reconstructed"]), unit(outputs["predicted"])
    after = truth[:, 1:]
    each = {
        "psnr": psnr(found, truth),
        "ssim": ssim(found, truth),
        "pred_psnr": psnr(guessed, after),
        "pred_ssim": ssim(guessed, after),
        **{f"{name}_psnr": values for name, values in baselines(truth[:, :-1], after, facts).items()},
    }
    return {tag: (values.double().sum(), values.numel()) for tag, values in each.items()}


def baselines(last: torch.Tensor, after: torch.Tensor, facts: Facts) -> dict[str, torch.Tensor]:
    """Returns the PSNR (B, S) of what is shown without a model, for frames `after` (B, S, 3, H, W) in [0, 1].

    `last` are the frames that are copied, of the same shape; one colour is the mean of the frame itself. The mean
    picture is that of the training set, absent where the facts have none.
    """
    found = {
        "copy_last": psnr(last, after),
        "one_colour": psnr(after.mean((-1, -2), keepdim=True).expand_as(after).contiguous(), after),
    }
    mean = mean_picture_of(facts, after)
    return found if mean is None else {**found, "mean_picture": psnr(mean.expand_as(after).contiguous(), after)}
