"""nuScenes prediction as one mode of the recipe."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from lead_trainer.contract.samples import Batch
from lead_trainer.recipes.distill.benchmarks.nuscenes.dataset import CLASSES, NuscenesSamples
from lead_trainer.recipes.distill.benchmarks.nuscenes.preparation import NuscenesPreparation
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.distill.modes import Mode, Totals, benchmark_root

if TYPE_CHECKING:
    import torch


def _encoder(config: DistillConfig) -> "torch.nn.Module":
    from lead_trainer.recipes.distill.benchmarks.nuscenes.encoder import RasterEncoder

    return RasterEncoder(config)


def _metrics(config: DistillConfig, predictions: Mapping[str, "torch.Tensor"], batch: Batch) -> Totals:
    from lead_trainer.recipes.distill.benchmarks.evaluation import benchmark_totals

    return benchmark_totals(predictions, batch, CLASSES)


MODE = Mode(
    preparation=NuscenesPreparation(),
    samples=NuscenesSamples,
    encoder=_encoder,
    source_root=partial(benchmark_root, holds="maps and the tables"),
    metrics=_metrics,
)
