"""What the recipe trains on, by `config.benchmark`: the teacher's clips, Argoverse 2 or nuScenes.

A mode is preparation + samples + input encoder + the metrics only it has; student, losses and everything else are the
same. What computes with torch is imported when it is called, so that a cache is built without it. Called by `recipe`,
`preparation` and `model`. Every mode's batch holds, beside what its encoder reads:

    target_xy     (B, T, 2) float32, metres, in the frame of the present pose: x ahead, y left
    target_yaw    (B, T) float32, radians
    target_valid  (B, T) bool
    speed         (B,) float32, m/s at the present pose: where the unicycle starts
    actions       (B, T, 2) float32, m/s² and 1/m: what drives the target (zeros where a mode knows none)

and the predictions that `metrics` gets hold

    xy            (B, K, T, 2), yaw (B, K, T), logits (B, K): softmax gives the modes' probabilities
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lead_trainer.contract.preparation import Preparation
from lead_trainer.contract.samples import Batch, Cache, Caches, Samples
from lead_trainer.contract.step import Facts
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.cache_tables import CollectionRows
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.distill.config import DistillConfig

if TYPE_CHECKING:
    import torch

Totals = Mapping[str, "tuple[torch.Tensor, torch.Tensor | int]"]  # (sum over items, items) by tag, as in `Evaluation`


@dataclass(frozen=True)
class Mode:
    """One kind of input and target."""

    preparation: Preparation
    samples: Callable[[DistillConfig, Any, str], Samples]  # config, cache or None, split: train | val
    encoder: Callable[[DistillConfig], "torch.nn.Module"]  # a module: batch -> (B, tokens, config.size.width)
    source_root: Callable[[DistillConfig], str]  # the raw tree on this machine; raises BadConfig where it is not set
    metrics: Callable[[DistillConfig, Mapping[str, "torch.Tensor"], Batch], Totals]  # besides ADE, FDE and yaw errors
    # Of training and of validation; a third one is validated on where the second is empty.
    collections: Callable[[DistillConfig], tuple[str, ...]] = lambda config: ("train", "val")
    facts: Callable[[Cache | None], Facts] = lambda cache: {}  # of the training split


MODES = {
    "none": "lead_trainer.recipes.distill.clips:MODE",
    "argoverse2": "lead_trainer.recipes.distill.benchmarks.argoverse2.mode:MODE",
    "nuscenes": "lead_trainer.recipes.distill.benchmarks.nuscenes.mode:MODE",
}


def mode_of(benchmark: str) -> Mode:
    """Imports and returns the mode of `config.benchmark`; only the one that runs is imported."""
    module, _, name = MODES[benchmark].partition(":")
    mode: Mode = getattr(import_module(module), name)
    return mode


def only_cache(caches: Caches) -> Cache | None:
    """Returns the one cache of a run, None where it has none; raises BadConfig for several."""
    if len(caches) > 1:
        raise BadConfig(f"datasets are {', '.join(caches)}, but recipe 'distill' trains on one; name one cache")
    return next(iter(caches.values()), None)


def collection_of(config: DistillConfig, split: str) -> str:
    """Returns the collection of a split, which is called as the split where no run trains or validates on it."""
    trained = dict(zip(("train", "val"), mode_of(config.benchmark).collections(config)[:2], strict=True))
    return trained.get(split, split)


def rows_of(config: DistillConfig, cache: CacheReader, split: str) -> CollectionRows:
    """Returns the rows of a split, of the mode's third collection where its validation is empty."""
    rows = cache.rows(collection_of(config, split))
    spare = mode_of(config.benchmark).collections(config)[2:]
    return cache.rows(spare[0]) if split == "val" and spare and not len(rows.sample) else rows


def benchmark_root(config: DistillConfig, holds: str) -> str:
    """Returns the folder of the benchmark's tree; raises BadConfig where it is not set, naming what it `holds`."""
    key = f"{config.benchmark}_root"
    root: str = getattr(config, key)
    if not root:
        raise BadConfig(f"{key}: is not set beside benchmark {config.benchmark}; name the folder with {holds}")
    return root
