"""What the loader hands to a step equals LEAD's samples: through build, shards, session caches and the device."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from lead_protocol.job import BuildJob, FolderSource, OwnerIdentity
from lead_protocol.store.folder import FolderStore
from lead_testing import shared_dir
from lead_testing.built_caches import build_and_publish
from lead_testing.golden_samples import COLLECTION, FLOATS_WITHIN, FOLDER, compared, golden, row_of, rows_of
from lead_trainer.contract.raw_data import SampleKey, SourceTree
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.cache_tables import CollectionRows
from lead_trainer.data.loader import on_device_of
from lead_trainer.data.process_loader import loader_named
from lead_trainer.data.session_cache import open_session_cache
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.recipes.lead.dataset import LeadSamples
from lead_trainer.recipes.lead.preparation import LeadPreparation
from lead_trainer.recipes.lead.recipe import RECIPE

BATCH = 4


class OneList(CacheReader):
    """Gives both stages the list on which LEAD's samples were recorded."""

    def rows(self, collection: str) -> CollectionRows:
        return super().rows(COLLECTION)


class PreparesRecorded(LeadPreparation):
    """Leaves the records of frames empty that no sample was recorded of, to save their time."""

    def record(self, tree: SourceTree, config: Mapping[str, Any], sample: SampleKey) -> Mapping[str, bytes]:
        wanted = {(entry["route"], entry["frame"]) for entry in golden().values()}
        return super().record(tree, config, sample) if (sample.route.split("/")[-1], sample.frame) in wanted else {}

    def stays_in_process(self, config: Mapping[str, Any]) -> bool:
        return True


class RecordedSamples(LeadSamples):
    """Draws what LEAD's samples were recorded of, and some of it twice where a batch is not full."""

    def epoch_draw(self, epoch: int) -> npt.NDArray[np.int64]:
        frames = sorted({tag.split("/")[0] for tag in golden() if golden()[tag]["planner"] == self.planner})
        stage = "planner" if self.planner else "pretrain"
        rows = [row_of(f"{frame}/{stage}/normal", self._rows) for frame in frames]
        return np.resize(np.array(rows, np.int64), -(-len(rows) // BATCH) * BATCH)

    @property
    def planner(self) -> bool:
        return self._config.use_planning_decoder


@pytest.fixture(scope="module")
def store_and_digest(tmp_path_factory: pytest.TempPathFactory) -> tuple[FolderStore, str]:
    """A store with the cache of LEAD's tree, in several shards."""
    store, tree = (
        FolderStore(tmp_path_factory.mktemp("store")),
        FolderTree(shared_dir() / FOLDER / "carla_leaderboard2"),
    )
    job = BuildJob(
        owner=OwnerIdentity(namespace="local", name="cache", uid="uid"), generation=1, attempt=1, index=0,
        parallelism=1,
        recipe="lead", source=FolderSource(path="tree"), collections=[COLLECTION],
    )  # fmt: skip
    recorded_only = replace(RECIPE, preparation=PreparesRecorded())
    done = build_and_publish(job, store, tree, recorded_only, lambda record: None, part_bytes=4 << 20, threads=2)
    assert done.shards_done > 1
    return store, done.digest


def recorded_types(planner: bool) -> dict[str, str]:
    """Returns the type of every key of the batch that LEAD's own collate made."""
    keys = json.loads((shared_dir() / FOLDER / "sampling.json").read_text())["collate"]
    types = {key: entry.get("dtype", entry["kind"]) for key, entry in keys.items()}
    return types if planner else {**types, "brake": "torch.float64"}


def type_of(value: Any) -> str:
    return str(value.dtype) if isinstance(value, torch.Tensor) else type(value).__name__


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("view", ["normal", "pert"])
@pytest.mark.parametrize("stage", ["planner", "pretrain"])
@pytest.mark.parametrize(("backend", "loader"), [("packed", "ring"), ("packed", "process"), ("diskcache", "ring")])
def test_every_delivered_array_is_leads_cold_and_warm(
    store_and_digest: tuple[FolderStore, str], tmp_path: Path, backend: str, loader: str, stage: str, view: str
) -> None:
    config = RECIPE.config(
        {
            "use_planning_decoder": stage == "planner", "compat": "lead", "use_color_aug": False,
            "use_sensor_perburtation": view == "pert", "use_sensor_perburtation_prob": 1.0,
        }
    )  # fmt: skip
    types = recorded_types(config.use_planning_decoder)
    for state in ("cold", "warm"):
        cache = OneList(*store_and_digest, open_session_cache(backend, store_and_digest[0], tmp_path / "ssd", 0))
        samples = RecordedSamples(config, cache)
        tags = {row_of(tag, samples._rows): tag for tag in golden() if tag.split("/")[1:] == [stage, view]}
        made = loader_named(loader)(
            samples, RECIPE.collate, batch_size=BATCH, seed=1, threads=2, on_device=on_device_of(RECIPE, config)
        )
        found = set()
        for batch in made.batches(0):
            assert {key: type_of(value) for key, value in batch.items()} == {key: types[key] for key in batch}
            for sample in rows_of(batch):
                tag = tags[sample["index"]]
                unlike = {key: value for key, value in compared(tag, sample) if not value <= FLOATS_WITHIN}
                assert unlike == {}, f"{tag}, {state}"
                found.add(tag)
        assert found == set(tags.values())
        stats = cache.stats()
        cache.close()
        assert not stats.degraded and (stats.misses > 0) == (state == "cold")
