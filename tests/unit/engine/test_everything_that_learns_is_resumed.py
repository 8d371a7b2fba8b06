"""With averaging, accumulation, a clipper's history, early stopping and validation, an interrupted run ends alike."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from lead_protocol.exit_codes import ExitCode
from lead_protocol.manifests import CheckpointManifest
from lead_protocol.store.folder import FolderStore
from lead_testing.toy_jobs import a_toy_job, manifests
from lead_testing.toy_runs import train_group, train_here

EVERYTHING = {
    "samples": 56,  # 7 batches an epoch: steps of 3, 3 and 1 of them
    "gradient_accumulation_steps": 3,
    "ema_decay": 0.9,
    "use_grad_clipper": True,
    "grad_quantile": 0.8,
    "validation_samples": 11,
    "validate_every_steps": 2,
    "patience_epochs": 3,
    "best_metric": "val/bias",
    "poisoned_sample": 5,
}
EPOCHS = 6


def learned(folder: Path, manifest: CheckpointManifest) -> dict[str, Any]:
    """Returns everything a checkpoint in the store of `folder` holds that training has changed."""
    tensors = {
        part: torch.load(folder / manifest.files[manifest.parts[part]].key, weights_only=True)
        for part in ("model", "ema", "clipper", "optimizer", "scaler")
    }
    loop = json.loads((folder / manifest.files[f"loop_{manifest.epoch - 1:04d}.json"].key).read_text())
    for epoch in loop["history"]:  # what rules read
        del epoch["watch/waiting_share"]  # a time
    return {**tensors, "loop": loop, "metrics": manifest.metrics}


def assert_same(one: Any, other: Any, where: str = "") -> None:
    """Compares nested values bit by bit."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_same(one[key], other[key], f"{where}/{key}")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), where
    else:
        assert one == other, where


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_run_stopped_at_random_steps_ends_like_an_uninterrupted_one(tmp_path: Path, precision: str) -> None:
    config = EVERYTHING | {"precision": precision}
    whole = FolderStore(tmp_path / "whole")
    assert train_here(whole, tmp_path / "a", a_toy_job(epochs=EPOCHS, config=config)) == ExitCode.DONE

    store, draw = FolderStore(tmp_path / "store"), random.Random(7)
    for attempt in range(1, 50):
        job = a_toy_job(attempt, epochs=EPOCHS, config=config)
        if train_here(store, tmp_path / "b", job, stop_in_call=draw.randint(2, 9)) == ExitCode.DONE:
            break
    assert attempt > 3
    expected, found = manifests(whole)[-1], manifests(store)[-1]
    assert (found.step, found.epoch) == (expected.step, expected.epoch)
    assert_same(learned(tmp_path / "store", found), learned(tmp_path / "whole", expected))


def test_a_group_killed_at_random_steps_ends_like_an_uninterrupted_one(tmp_path: Path) -> None:
    config = EVERYTHING | {"batch_size": 12, "samples": 84, "poisoned_sample": -1}
    job = a_toy_job(epochs=3, config=config, every_steps=2)
    assert train_group(tmp_path / "whole", job, 2) == [ExitCode.DONE] * 2
    for attempt, wish in enumerate(("KILL:6:1", "KILL:11:0"), start=1):
        codes = train_group(tmp_path / "store", job.model_copy(update={"attempt": attempt}), 2, signal=wish)
        assert -9 in codes
    assert train_group(tmp_path / "store", job.model_copy(update={"attempt": 3}), 2) == [ExitCode.DONE] * 2
    whole, store = FolderStore(tmp_path / "whole/store"), FolderStore(tmp_path / "store/store")
    assert_same(
        learned(tmp_path / "store/store", manifests(store)[-1]), learned(tmp_path / "whole/store", manifests(whole)[-1])
    )
