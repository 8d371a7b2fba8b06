"""nuScenes prediction as one mode of the recipe."""

from functools import partial

from lead_trainer.recipes.distill.benchmarks.evaluation import benchmark_totals
from lead_trainer.recipes.distill.benchmarks.nuscenes.dataset import CLASSES, NuscenesSamples
from lead_trainer.recipes.distill.benchmarks.nuscenes.encoder import RasterEncoder
from lead_trainer.recipes.distill.benchmarks.nuscenes.preparation import NuscenesPreparation
from lead_trainer.recipes.distill.modes import Mode, benchmark_root

MODE = Mode(
    preparation=NuscenesPreparation(),
    samples=NuscenesSamples,
    encoder=RasterEncoder,
    source_root=partial(benchmark_root, holds="maps and the tables"),
    metrics=lambda config, predictions, batch: benchmark_totals(predictions, batch, CLASSES),
)
