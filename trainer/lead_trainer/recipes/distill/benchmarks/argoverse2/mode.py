"""Argoverse 2 as one mode of the recipe."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from lead_trainer.contract.samples import Batch
from lead_trainer.recipes.distill.benchmarks.argoverse2.dataset import Argoverse2Samples
from lead_trainer.recipes.distill.benchmarks.argoverse2.preparation import Argoverse2Preparation
from lead_trainer.recipes.distill.benchmarks.argoverse2.scenario import OBJECT_TYPES
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.distill.modes import Mode, Totals, benchmark_root

if TYPE_CHECKING:
    import torch


def _encoder(config: DistillConfig) -> "torch.nn.Module":
    from lead_trainer.recipes.distill.benchmarks.argoverse2.encoder import VectorEncoder

    return VectorEncoder(config)


def _metrics(config: DistillConfig, predictions: Mapping[str, "torch.Tensor"], batch: Batch) -> Totals:
    from lead_trainer.recipes.distill.benchmarks.evaluation import benchmark_totals

    return benchmark_totals(predictions, batch, OBJECT_TYPES)


MODE = Mode(
    preparation=Argoverse2Preparation(),
    samples=Argoverse2Samples,
    encoder=_encoder,
    source_root=partial(benchmark_root, holds="train, val, test"),
    metrics=_metrics,
    # Sensor logs have no focal track to validate on, so their windows stand in.
    collections=lambda config: ("windows_train", "val", "windows_val") if config.all_agents else ("train", "val"),
)
