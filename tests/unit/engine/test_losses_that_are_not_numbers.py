"""A gradient that is not finite changes no weight, is counted, and ends a run that has only such gradients."""

import json
from pathlib import Path

import pytest
import torch

from lead_protocol.store.folder import FolderStore
from lead_testing.toy_jobs import a_toy_job, manifests
from lead_testing.toy_runs import train_here
from lead_trainer.contract.training_keys import LossScale
from lead_trainer.engine.hooks import Diverged
from lead_trainer.engine.step.precision import gradient_scaler, update_scale


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_bad_sample_costs_its_step_and_is_counted(tmp_path: Path, precision: str) -> None:
    store = FolderStore(tmp_path / "store")
    train_here(store, tmp_path, a_toy_job(epochs=2, config={"poisoned_sample": 3, "precision": precision}))
    last = manifests(store)[-1]
    skipped = store.get(last.files["gradient_steps_skipped_0001.txt"].key, max_bytes=100)
    assert skipped == b"2"  # once an epoch
    loop = json.loads(store.get(last.files["loop_0001.json"].key, max_bytes=10_000))
    assert (loop["step"], loop["skipped_steps"]) == (12, 2)
    assert last.metrics["loss"] < 100


def test_a_run_of_nothing_but_bad_steps_ends(tmp_path: Path) -> None:
    config = {"samples": 8, "poisoned_sample": 3}
    with pytest.raises(Diverged, match="not finite for 50 steps in a row, up to step 50"):
        train_here(FolderStore(tmp_path / "store"), tmp_path, a_toy_job(epochs=60, config=config))


def test_bad_steps_in_a_row_are_counted_over_restarts(tmp_path: Path) -> None:
    store, config = FolderStore(tmp_path / "store"), {"samples": 8, "poisoned_sample": 3}
    train_here(store, tmp_path, a_toy_job(epochs=30, config=config))
    with pytest.raises(Diverged, match="not finite for 50 steps in a row, up to step 50"):
        train_here(store, tmp_path, a_toy_job(epochs=60, config=config, attempt=2))


def test_the_loss_scale_begins_as_told_and_never_passes_its_largest_value() -> None:
    scale = LossScale(initial=4.0, growth=2.0, growth_interval=1, largest=8.0)
    scaler = gradient_scaler(torch.float16, torch.device("cpu"), scale)
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scales = []
    for _ in range(3):
        scaler.scale(weight.sum()).backward()
        scaler.step(optimizer)
        update_scale(scaler, scale)
        scales.append(scaler.get_scale())
    assert scales == [8.0, 8.0, 8.0]
