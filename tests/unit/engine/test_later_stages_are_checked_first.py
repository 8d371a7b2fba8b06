"""The first stage of several ends before it trains where a later one has a wrong key or no data in the caches."""

from pathlib import Path
from typing import Any

import pytest

from lead_protocol.job import CheckedStage, CheckJob, TrainJob
from lead_protocol.store.folder import FolderStore
from lead_testing.data_faults import build_test_cache
from lead_testing.toy_jobs import a_toy_job, manifests
from lead_testing.toy_recipe import RECIPE
from lead_testing.toy_runs import toy_recipe_with, train_here
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.errors import BadConfig


def first_of_two(second: dict[str, Any]) -> TrainJob:
    job = a_toy_job(epochs=1)
    stages = [CheckedStage(stage=job.stage, epochs=1), CheckedStage(stage="tune", epochs=1, config=second)]
    check = CheckJob(owner=job.owner, recipe=job.recipe, nodes=1, procs_per_node=1, stages=stages)
    return job.model_copy(update={"all_stages": check})


def test_a_wrong_key_of_the_second_stage_ends_the_first_before_a_step(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    with pytest.raises(BadConfig, match=r"^stage tune: .*validation_sampels"):
        train_here(store, tmp_path, first_of_two({"validation_sampels": 4}))
    assert not manifests(store)


def test_data_that_only_the_second_stage_needs_are_missed_before_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(config: Any, caches: Any) -> Any:
        if config.validation_samples:
            raise BadConfig("collection 'tune' is not in DatasetCache towns, which has: train")
        return RECIPE.samples(config, caches)

    store = FolderStore(tmp_path / "store")
    with (
        toy_recipe_with(samples=lacking),
        pytest.raises(BadConfig, match=r"^stage tune: collection 'tune' is not in DatasetCache towns"),
    ):
        train_here(store, tmp_path, first_of_two({"validation_samples": 4}))
    assert not manifests(store)


def test_a_run_whose_stages_are_all_right_trains(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    train_here(store, tmp_path, first_of_two({"validation_samples": 4}))
    assert [m.step for m in manifests(store)] == [6]


def test_a_missing_collection_is_named_with_its_dataset_cache_and_what_to_change(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    cache = CacheReader(store, build_test_cache(store), name="towns")
    with pytest.raises(
        BadConfig, match=r"'tune' is not in DatasetCache towns, which has: .*; add it to spec.collections"
    ):
        cache.rows("tune")
