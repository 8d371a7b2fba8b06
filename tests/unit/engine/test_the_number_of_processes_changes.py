"""A run that goes on with fewer or more processes: the same batches, and weights equal but for rounding."""

import io
import signal
from pathlib import Path

import pytest
import torch

from lead_protocol.job import TrainJob
from lead_protocol.manifests import CheckpointManifest
from lead_protocol.store.folder import FolderStore
from lead_testing.toy_jobs import a_toy_job, manifests
from lead_testing.toy_runs import train_group

BY_SAMPLE = {"dropout": 0.0, "sample_norm": True, "batch_size": 8}
BY_SAMPLE |= {"async_checkpoints": False}  # so that a kill finds the step before it committed
STEPS = 18  # six an epoch


def a_job(attempt: int, processes: int) -> TrainJob:
    return a_toy_job(attempt, processes=processes, every_steps=1, keep_last=100, config=BY_SAMPLE)


def weights(store: FolderStore, manifest: CheckpointManifest) -> dict[str, torch.Tensor]:
    data = store.get(manifest.files[manifest.parts["model"]].key, max_bytes=10**6)
    found: dict[str, torch.Tensor] = torch.load(io.BytesIO(data), weights_only=True)
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, torch.Tensor]]:
    """The weights after each step of a run of four processes that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    assert train_group(folder, a_job(1, 4), 4) == [0] * 4
    store = FolderStore(folder / "store")
    return {manifest.step: weights(store, manifest) for manifest in manifests(store)}


def test_four_two_one_and_four_processes_train_the_steps_of_four(
    tmp_path: Path, whole: dict[int, dict[str, torch.Tensor]]
) -> None:
    for attempt, processes in enumerate([4, 2, 1], start=1):
        ended = train_group(tmp_path, a_job(attempt, processes), processes, signal=f"KILL:5:{processes - 1}")
        assert -signal.SIGKILL in ended
    assert train_group(tmp_path, a_job(4, 4), 4) == [0] * 4
    store = FolderStore(tmp_path / "store")
    found = {manifest.step: manifest for manifest in manifests(store)}
    assert found.keys() == whole.keys() and [*found] == [*range(1, STEPS + 1)]
    assert [found[step].world_size for step in (4, 8, 12, STEPS)] == [4, 2, 1, 4]
    for step, manifest in found.items():
        torch.testing.assert_close(weights(store, manifest), whole[step], rtol=1e-4, atol=1e-6)


def test_between_two_changes_the_weights_are_the_same_bits(tmp_path: Path) -> None:
    hashes = []
    for name, stops in (("straight", []), ("killed", [3, 4])):
        folder = tmp_path / name
        assert -signal.SIGKILL in train_group(folder, a_job(1, 2), 2, signal="KILL:5:1")
        for attempt, call in enumerate(stops, start=2):
            assert -signal.SIGKILL in train_group(folder, a_job(attempt, 1), 1, signal=f"KILL:{call}:0")
        assert train_group(folder, a_job(2 + len(stops), 1), 1) == [0]
        hashes.append({each.step: each.parameters_sha256 for each in manifests(FolderStore(folder / "store"))})
    assert hashes[0] == hashes[1] and len(hashes[0]) == STEPS
