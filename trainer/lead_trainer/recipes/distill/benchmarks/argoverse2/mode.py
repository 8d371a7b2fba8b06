"""Argoverse 2 as one mode of the recipe."""

from lead_trainer.errors import BadConfig
from lead_trainer.recipes.distill.benchmarks.argoverse2.dataset import Argoverse2Samples, collection_of
from lead_trainer.recipes.distill.benchmarks.argoverse2.encoder import VectorEncoder
from lead_trainer.recipes.distill.benchmarks.argoverse2.preparation import Argoverse2Preparation
from lead_trainer.recipes.distill.benchmarks.argoverse2.scenario import OBJECT_TYPES
from lead_trainer.recipes.distill.benchmarks.evaluation import benchmark_totals
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.distill.modes import Mode


def source_root(config: DistillConfig) -> str:
    """Returns the tree's folder; raises BadConfig where it is not set."""
    if not config.argoverse2_root:
        raise BadConfig(
            "argoverse2_root: is not set beside benchmark argoverse2; name the folder with train, val, test"
        )
    return config.argoverse2_root


MODE = Mode(
    preparation=Argoverse2Preparation(),
    samples=Argoverse2Samples,
    encoder=VectorEncoder,
    source_root=source_root,
    metrics=lambda config, predictions, batch: benchmark_totals(predictions, batch, OBJECT_TYPES),
    collections=lambda config: (collection_of(config, "train"), collection_of(config, "val")),
)
