"""Argoverse 2 as one mode of the recipe."""

from functools import partial

from lead_trainer.recipes.distill.benchmarks.argoverse2.dataset import Argoverse2Samples
from lead_trainer.recipes.distill.benchmarks.argoverse2.encoder import VectorEncoder
from lead_trainer.recipes.distill.benchmarks.argoverse2.preparation import Argoverse2Preparation
from lead_trainer.recipes.distill.benchmarks.argoverse2.scenario import OBJECT_TYPES
from lead_trainer.recipes.distill.benchmarks.evaluation import benchmark_totals
from lead_trainer.recipes.distill.modes import Mode, benchmark_root

MODE = Mode(
    preparation=Argoverse2Preparation(),
    samples=Argoverse2Samples,
    encoder=VectorEncoder,
    source_root=partial(benchmark_root, holds="train, val, test"),
    metrics=lambda config, predictions, batch: benchmark_totals(predictions, batch, OBJECT_TYPES),
    # Sensor logs have no focal track to validate on, so their windows stand in.
    collections=lambda config: ("windows_train", "val", "windows_val") if config.all_agents else ("train", "val"),
)
