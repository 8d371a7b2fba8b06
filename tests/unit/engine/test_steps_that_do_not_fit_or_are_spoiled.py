"""A batch that is not finite is named and leaves no trace; a batch that is too large is cut, with the same samples."""

import json
from pathlib import Path

import pytest
import torch

from lead_protocol.exit_codes import ExitCode
from lead_protocol.store.folder import FolderStore
from lead_testing.toy_jobs import KEYS, a_toy_job, manifests, progress_record
from lead_testing.toy_recipe import RECIPE, ToyConfig, ToyModel
from lead_testing.toy_runs import toy_recipe_with, train_group, train_here
from lead_trainer.contract.step import Facts
from lead_trainer.engine.attempt.memory import (
    MemoryPlan,
    OutOfMemory,
    next_memory_plan,
    record_memory_plan,
    recorded_memory_plan,
)
from lead_trainer.errors import BadData


def test_the_samples_of_a_skipped_step_are_named_and_its_batch_norms_undone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = FolderStore(tmp_path / "store")
    config = {
        "poisoned_sample": 3,
        "spoiled_input": True,
        "batch_size": 2,
        "samples": 8,
        "gradient_accumulation_steps": 2,
    }
    train_here(store, tmp_path, a_toy_job(epochs=2, config=config))
    last = manifests(store)[-1]
    model = torch.load(tmp_path / "store" / last.files["model_0001.pth"].key, weights_only=True)
    assert all(torch.isfinite(value).all() for value in model.values())
    record = progress_record(store)
    assert [advisory.rule for advisory in record.advisories] == ["not-finite"]
    message = record.advisories[0].message
    assert "point-3" in message and message.count("point-") == 2  # of the one micro-batch of two that was spoiled
    assert json.loads(store.get(last.files["loop_0001.json"].key, max_bytes=10**5))["skipped_steps"] == 2


def test_a_batch_that_does_not_fit_is_cut_and_the_run_goes_on(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    config = {"rows_in_memory": 2, "split_when_out_of_memory": True}
    train_here(store, tmp_path, a_toy_job(epochs=2, config=config))
    last = manifests(store)[-1]
    assert (last.step, last.micro_batches) == (12, 4)  # as many steps as with whole batches of 8
    assert recorded_memory_plan(store, KEYS, MemoryPlan(False), rank_batch=8) == MemoryPlan(True, 4)
    record = progress_record(store)
    assert record.advisories[0].rule == "memory"
    train_here(store, tmp_path, a_toy_job(2, epochs=3, config=config))  # begins at the memory_plan that worked
    assert manifests(store)[-1].micro_batches == 4


@pytest.mark.parametrize("can_checkpoint", [True, False])
def test_a_model_is_built_once_a_try_and_saves_memory_where_its_recipe_can(
    tmp_path: Path, can_checkpoint: bool
) -> None:
    built: list[bool] = []

    def model(config: ToyConfig, facts: Facts) -> torch.nn.Module:
        built.append(True)
        return ToyModel(config.dropout)

    store, config = FolderStore(tmp_path / "store"), {"rows_in_memory": 2, "split_when_out_of_memory": True}
    with toy_recipe_with(model=model, save_memory=RECIPE.save_memory if can_checkpoint else None):
        train_here(store, tmp_path, a_toy_job(epochs=1, config=config))
    assert recorded_memory_plan(store, KEYS, MemoryPlan(False), rank_batch=8) == MemoryPlan(can_checkpoint, 4)
    assert len(built) == 3 + can_checkpoint  # whole batches, halves, quarters


@pytest.mark.parametrize(("rank_batch", "parts"), [(8, 2), (4, 1), (16, 4), (6, 2), (7, 7), (1, 1)])
def test_a_group_of_another_size_takes_as_many_samples_at_once(tmp_path: Path, rank_batch: int, parts: int) -> None:
    store = FolderStore(tmp_path)
    for recorded in (1, 2):  # of 8 samples a process: first whole, then 4 at once
        record_memory_plan(store, KEYS, MemoryPlan(True, recorded), rank_batch=8)
    assert recorded_memory_plan(store, KEYS, MemoryPlan(False), rank_batch) == MemoryPlan(True, parts)


def test_a_run_whose_group_became_larger_cuts_no_more_than_it_must(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    config = {"rows_in_memory": 2, "split_when_out_of_memory": True, "batch_size": 12}
    train_here(store, tmp_path, a_toy_job(epochs=1, config=config))
    assert manifests(store)[-1].micro_batches == 6
    assert train_group(tmp_path, a_toy_job(2, epochs=2, processes=2, config=config), 2) == [ExitCode.DONE] * 2
    assert (manifests(store)[-1].micro_batches, manifests(store)[-1].world_size) == (3, 2)


def test_a_group_ends_in_a_code_that_no_budget_counts_until_its_steps_fit(tmp_path: Path) -> None:
    config = {"rows_in_memory": 2, "split_when_out_of_memory": True, "batch_size": 8}
    for attempt in (1, 2):
        codes = train_group(tmp_path, a_toy_job(attempt, epochs=1, processes=2, config=config), 2)
        assert ExitCode.STEP_TOO_LARGE in codes and set(codes) <= {ExitCode.STEP_TOO_LARGE, ExitCode.LOST_PEER}
    assert train_group(tmp_path, a_toy_job(3, epochs=1, processes=2, config=config), 2) == [ExitCode.DONE] * 2
    assert manifests(FolderStore(tmp_path / "store"))[-1].micro_batches == 2


def test_without_leave_to_cut_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(OutOfMemory, match="batch_size smaller with more gradient_accumulation_steps"):
        train_here(FolderStore(tmp_path / "store"), tmp_path, a_toy_job(config={"rows_in_memory": 2}))


def test_the_rungs_end_with_single_samples_and_a_spoiled_record_is_named(tmp_path: Path) -> None:
    memory_plan: MemoryPlan | None = MemoryPlan(False)
    seen = []
    while memory_plan is not None:
        seen.append((memory_plan.gradient_checkpointing, memory_plan.parts))
        memory_plan = next_memory_plan(memory_plan, 6, can_checkpoint=True)
    assert seen == [(False, 1), (True, 1), (True, 2), (True, 3), (True, 6)]
    store = FolderStore(tmp_path)
    store.create(KEYS.memory(2, True), b"{}")
    with pytest.raises(BadData, match="no record of a memory memory_plan"):
        recorded_memory_plan(store, KEYS, MemoryPlan(False), rank_batch=8)


def test_recomputed_activations_give_the_same_weights(tmp_path: Path) -> None:
    hashes = set()
    for on in (False, True):
        store = FolderStore(tmp_path / str(on))
        config = {"gradient_checkpointing": on, "freeze_batchnorm": True}
        train_here(store, tmp_path / f"run-{on}", a_toy_job(epochs=1, config=config))
        hashes.add(manifests(store)[-1].parameters_sha256)
    assert len(hashes) == 1
