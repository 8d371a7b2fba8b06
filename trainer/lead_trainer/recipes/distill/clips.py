"""The mode without a benchmark: the teacher's clips, four cameras and the ego's own history."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lead_trainer.contract.samples import Batch, Cache, Samples
from lead_trainer.contract.step import Facts
from lead_trainer.data.plain_scan import known_collections
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.distill.action_stats import SMALLEST_SPREAD, STATS, stats_of
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.distill.dataset import ClipSamples
from lead_trainer.recipes.distill.dataset_dummy import DummySamples
from lead_trainer.recipes.distill.ingest.clip_tree import stage_command
from lead_trainer.recipes.distill.modes import Mode, Totals
from lead_trainer.recipes.distill.prepare_clips import SPLITS, ClipPreparation

if TYPE_CHECKING:
    import torch


def _samples(config: DistillConfig, cache: Any, split: str) -> Samples:
    known_collections([split], SPLITS)
    if cache is not None:
        return ClipSamples(config, cache, split)
    if config.offline:
        return DummySamples(config, split)
    raise BadConfig(
        "recipe distill trains on a dataset cache; name one in datasets, set data_root, or set offline=true"
    )


def _source_root(config: DistillConfig) -> str:
    if config.teacher == "files":
        _require(
            config, f"{config.ego_history_dir.strip('/')}/train_ego_history.npz", "generate_ego_history --split all"
        )
    return config.data_root


def _require(config: DistillConfig, path: str, stage: str) -> None:
    root = Path(config.data_root)
    if root.is_dir() and not (root / path).is_file():  # a folder that does not exist is reported as one
        command = stage_command(stage, config.data_root)
        raise BadConfig(f"data_root: there is no file {root / path}; set data_root=DIR, or make it with {command}")


def _encoder(config: DistillConfig) -> "torch.nn.Module":
    from lead_trainer.recipes.distill.network.camera_encoder import CameraEncoder

    return CameraEncoder(config)


def _metrics(config: DistillConfig, predictions: Mapping[str, "torch.Tensor"], batch: Batch) -> Totals:
    return {}


def _facts(cache: Cache | None) -> Facts:
    """Returns the actions' mean and spread; of made-up drives the limits of what the scripted teacher does."""
    if cache is None:
        return {STATS: [[0.0, 0.0], [1.0, SMALLEST_SPREAD[1] * 20]]}
    return {STATS: stats_of(cache.facts, cache.digest[:12]).tolist()}


MODE = Mode(
    preparation=ClipPreparation(),
    samples=_samples,
    encoder=_encoder,
    source_root=_source_root,
    metrics=_metrics,
    facts=_facts,
)
