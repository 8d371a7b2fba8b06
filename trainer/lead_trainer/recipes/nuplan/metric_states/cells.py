"""Overlap of map layers and rightness of occupancy, as counts of cells: whole numbers, exact in any order."""

import math
from collections.abc import Sequence

import torch
from torchmetrics import Metric

from lead_trainer.recipes.nuplan.data_keys import LAYERS


class LayerOverlap(Metric):
    """Intersection over union of each layer over all samples, where chances are above one half.

    `mIoU` is the mean over layers that occur in truth or prediction, `mIoU_of_truth` over those of the truth; `suffix`
    distinguishes whose cells these are.
    """

    full_state_update = False
    both: torch.Tensor
    either: torch.Tensor
    true: torch.Tensor

    def __init__(self, layers: Sequence[str] = LAYERS, suffix: str = "") -> None:
        super().__init__()
        self.layers, self.suffix = tuple(layers), suffix
        for name in ("both", "either", "true"):
            self.add_state(name, default=torch.zeros(len(layers), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, logits: torch.Tensor, truth: torch.Tensor) -> None:
        """Adds logits and truth (B, L, G, G)."""
        found, true = logits > 0, truth.bool()
        self.both += (found & true).sum((0, 2, 3))
        self.either += (found | true).sum((0, 2, 3))
        self.true += true.sum((0, 2, 3))

    def by_layer(self) -> dict[str, float]:
        """Returns the IoU of each layer, NaN where it occurs nowhere."""
        counts = zip(self.layers, self.both.tolist(), self.either.tolist(), strict=True)
        return {name: both / either if either else math.nan for name, both, either in counts}

    def compute(self) -> dict[str, float]:
        """Returns `mIoU`, `mIoU_of_truth`, `IoU/<layer>`; NaN where nothing was counted."""
        each = self.by_layer()
        of_truth = [iou for iou, true in zip(each.values(), self.true.tolist(), strict=True) if true]
        known = {name: iou for name, iou in each.items() if not math.isnan(iou)}
        means = {"mIoU": _mean(list(known.values())), "mIoU_of_truth": _mean(of_truth)}
        each = {f"IoU/{name}": iou for name, iou in known.items()}
        return {f"{tag}{self.suffix}": value for tag, value in {**means, **each}.items()}


class OccupancyRightness(Metric):
    """Accuracy, recall and precision of occupied cells over the known cells of all samples."""

    full_state_update = False
    counts: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        # true and false positives, true and false negatives
        self.add_state("counts", default=torch.zeros(4, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, logits: torch.Tensor, truth: torch.Tensor, known: torch.Tensor) -> None:
        """Adds logits, truth and known cells (B, G, G)."""
        found, true, counted = logits > 0, truth.bool(), known.bool()
        each = [found & true, found & ~true, ~found & ~true, ~found & true]
        self.counts += torch.stack([(cells & counted).sum() for cells in each])

    def compute(self) -> dict[str, float]:
        """Returns `occupancy_accuracy`, `…_recall`, `…_precision`; NaN where there is nothing to divide by."""
        hits, alarms, rejections, misses = self.counts.tolist()
        return {
            "occupancy_accuracy": _share(hits + rejections, hits + alarms + rejections + misses),
            "occupancy_recall": _share(hits, hits + misses),
            "occupancy_precision": _share(hits, hits + alarms),
        }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan
