"""The progress record counts every step by its duration and every checkpoint, for the operator to export."""

import time
from pathlib import Path

import pytest
import torch

from lead_protocol.progress_record import STEP_BOUNDS_S
from lead_protocol.store.folder import FolderStore
from lead_testing.toy_jobs import a_toy_job, manifests, progress_record
from lead_testing.toy_runs import train_here
from lead_trainer.engine.reporting.attempt_counters import AttemptCounters


def test_steps_and_checkpoints_of_a_training_are_counted(tmp_path: Path) -> None:
    store, begin = FolderStore(tmp_path / "store"), time.monotonic()
    train_here(store, tmp_path, a_toy_job(epochs=3))
    took_s = time.monotonic() - begin
    record = progress_record(store)
    assert sum(record.step_counts) == record.step == 18
    assert record.checkpoints == len(manifests(store)) == 3
    assert 0 < record.steps_s < took_s and 0 < record.checkpoints_s < took_s
    if not torch.cuda.is_available():
        assert (record.gpu_busy, record.gpu_memory_bytes) == (None, None)


@pytest.mark.parametrize(("seconds", "place"), [(0.0, 0), (0.01, 0), (0.011, 1), (30.0, -2), (31.0, -1)])
def test_a_step_counts_up_to_the_first_bound_that_it_keeps(seconds: float, place: int) -> None:
    counters = AttemptCounters(torch.device("cpu"))
    counters.step(seconds)
    found = counters.reported()
    assert len(found["step_counts"]) == len(STEP_BOUNDS_S) + 1
    assert found["step_counts"][place] == 1 == sum(found["step_counts"]) and found["steps_s"] == seconds


def test_a_checkpoint_that_fails_is_not_counted() -> None:
    counters = AttemptCounters(torch.device("cpu"))
    with pytest.raises(OSError), counters.waiting_for_checkpoint():
        raise OSError("the store is away")
    assert (counters.reported()["checkpoints"], counters.reported()["checkpoints_s"]) == (0, 0.0)
