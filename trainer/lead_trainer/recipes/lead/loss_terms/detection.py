"""CenterNet losses; each is summed over cells and divided by the sample's number of box centres."""

from collections.abc import Mapping

from torch import Tensor
from torch.nn import functional as F

from lead_trainer.recipes.lead.data_sources import CARLA, DataSource
from lead_trainer.recipes.lead.loss_terms.per_sample import full_precision, mean_over, samples_of, unlabelled
from lead_trainer.recipes.lead.network.perception_heads import CenterNetMaps

FOCAL_EPSILON = 1e-12


def gaussian_focal(scores: Tensor, target: Tensor) -> Tensor:
    """Focal loss against a heatmap of Gaussians (Law and Deng 2018), alpha 2 and gamma 4, per element.

    Cells where `target` is exactly 1 are centres; elsewhere a high target softens the penalty.
    """
    centre = -(scores + FOCAL_EPSILON).log() * (1 - scores).square() * (target == 1)
    elsewhere = -(1 - scores + FOCAL_EPSILON).log() * scores.square() * (1 - target).pow(4)
    return centre + elsewhere


def center_net_losses(
    maps: CenterNetMaps, batch: Mapping[str, Tensor], source: DataSource = CARLA
) -> dict[str, Tensor]:
    """Returns the raw losses of the heatmap and of every box property at the cells of centres, of one data set."""
    head = f"{source.prefix}center_net_"
    label = {key.removeprefix(head): value for key, value in batch.items() if key.startswith(head)}
    if not label:
        parts = {name: getattr(maps, name) for name in ("heatmap", "wh", "offset", "yaw_class", "yaw_res", "velocity")}
        return {
            f"{source.prefix}loss_center_net_{name}": unlabelled(part)
            for name, part in parts.items()
            if part is not None
        }
    weight = label["pixel_weight"]
    first = weight[:, :1]
    terms = {
        "heatmap": gaussian_focal(maps.heatmap, label["heatmap"]),
        "wh": (full_precision(maps.wh) - label["wh"]).abs() * weight / 2,
        "offset": (full_precision(maps.offset) - label["offset"]).abs() * weight / 2,
        "yaw_class": _cross_entropy(maps.yaw_class, label["yaw_class"]) * first,
        "yaw_res": F.smooth_l1_loss(full_precision(maps.yaw_res), label["yaw_res"], reduction="none") * first,
    }
    if maps.velocity is not None:
        terms["velocity"] = (full_precision(maps.velocity) - label["velocity"]).abs() * first
    samples = samples_of(batch, source)
    centres = label["avg_factor"].clamp(min=1)  # 0 where the sample is of another data set
    return {
        f"{source.prefix}loss_center_net_{name}": mean_over(samples, term.sum(dim=(1, 2, 3)) / centres)
        for name, term in terms.items()
    }


def _cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    return F.cross_entropy(full_precision(logits), label.long(), reduction="none")[:, None]
