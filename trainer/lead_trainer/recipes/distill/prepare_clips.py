"""How the teacher's clips become cache records: pictures, ego history, and the teacher's output, one record per sample.

Stages, as the training guide has them, each of which may be done beforehand or here: extract frames ∥ label (a GPU for
the real teacher; shards) → ego history → merge. A record holds `frame_<camera>_<time>` (JPEG), `arrays` (poses, the
label, what drives it) and `reasoning` (UTF-8). A pod of a cache's build does all stages of its share of the samples,
but those that `spec.build.stages` gave to other pods (`clip_stages`).
"""

import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lead_trainer.contract.preparation import Fields, Preparation
from lead_trainer.contract.raw_data import RouteVerdict, SampleKey, Scan, SourceTree
from lead_trainer.data.array_block import unpack_arrays
from lead_trainer.data.plain_scan import known_collections, plain_scan
from lead_trainer.recipes.distill.action_stats import action_counts, action_facts
from lead_trainer.recipes.distill.clip_stages import ClipWork, stages_of
from lead_trainer.recipes.distill.config import CAMERAS, FRAMES_PER_CAMERA
from lead_trainer.recipes.distill.config_values import config_of_cache
from lead_trainer.recipes.distill.ingest.clip_tree import ClipTree
from lead_trainer.recipes.distill.prepare_keys import ClipKeys

SPLITS = ("train", "val")
_BYTES_A_PIXEL = 0.4  # of such a JPEG, for cutting shards


class ClipPreparation(Preparation):
    """The preparation of the teacher's clips; pure in (tree, keys), but for the sampling of a real teacher."""

    version = "distill-clips/3"
    default_collections: tuple[str, ...] = SPLITS

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._trees: weakref.WeakKeyDictionary[SourceTree, dict[ClipKeys, ClipTree]] = weakref.WeakKeyDictionary()

    def all_collections(self) -> Sequence[str]:
        """Returns the splits."""
        return SPLITS

    def config_keys(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the read values; `config` holds the recipe's keys and optionally `preset`."""
        return ClipKeys.of(config_of_cache(config)).as_mapping()

    def reads(self, config: Mapping[str, Any]) -> Sequence[str]:
        """Returns how the paths of pictures, motion, labels and their shards, and ego histories begin."""
        return ClipKeys.parse(config).paths

    def scan(self, tree: SourceTree, config: Mapping[str, Any], collections: Sequence[str]) -> Scan:
        """Judges every sample of the named splits by its history and, if the teacher's files contain it, its label."""
        splits = known_collections(collections, SPLITS)
        keys, clips = ClipKeys.parse(config), self._tree(tree, config)
        verdicts: list[RouteVerdict] = []
        rows: dict[str, list[SampleKey]] = {split: [] for split in splits}
        for split in splits:
            for number, clip in sorted(clips.clips(split).items()):
                route = f"{split}/{clip.clip_id}@{clip.t0_us}"
                reason = clips.fault(split, number, clip)
                verdicts.append(RouteVerdict(route, not reason, reason or "kept", 1))
                if not reason:
                    rows[split].append(SampleKey(route, number))
        size = int(len(CAMERAS) * FRAMES_PER_CAMERA * keys.resolution**2 * _BYTES_A_PIXEL)
        return plain_scan(verdicts, rows, lambda key: size)

    def record(self, tree: SourceTree, config: Mapping[str, Any], sample: SampleKey) -> Fields:
        """Returns one sample's fields; raises BadData naming the clip, and what its label lacks."""
        return self._work(tree, config, sample).record()

    def build_stages(self, config: Mapping[str, Any]) -> Sequence[str]:
        """Returns the stages that make something with this config."""
        return stages_of(ClipKeys.parse(config))

    def stage_fields(self, tree: SourceTree, config: Mapping[str, Any], stage: str, sample: SampleKey) -> Fields:
        """Returns what a stage makes of one sample; raises BadData like `record`."""
        return self._work(tree, config, sample).fields(stage)

    def _work(self, tree: SourceTree, config: Mapping[str, Any], sample: SampleKey) -> ClipWork:
        return ClipWork(tree, self._tree(tree, config), sample, ClipKeys.parse(config).resolution)

    def counts(
        self, config: Mapping[str, Any], sample: SampleKey, record: Mapping[str, memoryview]
    ) -> Mapping[str, npt.NDArray[np.int64]]:
        """Returns how often each action occurs in a clip of the training split."""
        if not sample.route.startswith(f"{SPLITS[0]}/"):
            return {}
        arrays = unpack_arrays(record["arrays"], compressed=False)
        return action_counts(arrays["actions"][None].astype(np.float64), arrays["speed"].astype(np.float64))

    def facts(
        self, config: Mapping[str, Any], counts: Mapping[str, npt.NDArray[np.int64]]
    ) -> Mapping[str, Sequence[float]]:
        """Returns mean and spread of the training split's actions, none of a cache without that split."""
        return action_facts(counts)

    def route_metas(self, tree: SourceTree, config: Mapping[str, Any], route: str, frames: Sequence[int]) -> pa.Table:
        """Returns which clip each sample shows."""
        clip_id, _, t0_us = route.partition("/")[2].rpartition("@")
        return pa.table(
            {
                "frame": pa.array(frames, pa.int64()),
                "clip_id": pa.array([clip_id] * len(frames), pa.string()),
                "t0_us": pa.array([int(t0_us)] * len(frames), pa.int64()),
            }
        )

    def _tree(self, tree: SourceTree, config: Mapping[str, Any]) -> ClipTree:
        """Returns the opened tree; labels and a teacher's weights are read once a process."""
        keys = ClipKeys.parse(config)
        with self._lock:
            opened = self._trees.setdefault(tree, {})
            if keys not in opened:
                opened[keys] = ClipTree(tree, keys)
            return opened[keys]
