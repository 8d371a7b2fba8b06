"""nuScenes prediction as one mode of the recipe."""

from lead_trainer.errors import BadConfig
from lead_trainer.recipes.distill.benchmarks.evaluation import benchmark_totals
from lead_trainer.recipes.distill.benchmarks.nuscenes.dataset import CLASSES, NuscenesSamples
from lead_trainer.recipes.distill.benchmarks.nuscenes.encoder import RasterEncoder
from lead_trainer.recipes.distill.benchmarks.nuscenes.preparation import NuscenesPreparation
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.distill.modes import Mode


def source_root(config: DistillConfig) -> str:
    """Returns the tree's folder; raises BadConfig where it is not set."""
    if not config.nuscenes_root:
        raise BadConfig("nuscenes_root: is not set beside benchmark nuscenes; name the folder with maps and the tables")
    return config.nuscenes_root


MODE = Mode(
    preparation=NuscenesPreparation(),
    samples=NuscenesSamples,
    encoder=RasterEncoder,
    source_root=source_root,
    metrics=lambda config, predictions, batch: benchmark_totals(predictions, batch, CLASSES),
)
