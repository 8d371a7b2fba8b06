"""A disk that is full is waited for as a store is, and named; what it says on rank 0 every rank hears."""

import errno
import itertools
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import StoreFull
from lead_testing.toy_jobs import a_toy_job, manifests
from lead_testing.toy_runs import train_here
from lead_trainer.engine.checkpoints import checkpoint
from lead_trainer.engine.group.agreement import done_by_first
from lead_trainer.engine.group.ddp import Group
from lead_trainer.world import World

FULL = Path("/dev/full")  # takes no byte, as a full disk does


@pytest.mark.parametrize(
    "write",
    [
        lambda sink: torch.save({"weights": torch.zeros(10**6)}, sink),
        lambda sink: torch.save({"weights": torch.zeros(1)}, sink),
        lambda sink: sink.write(b"{}"),
    ],
    ids=["large", "small", "text"],
)
def test_a_checkpoint_file_without_room_is_named(write: Any) -> None:
    with pytest.raises(StoreFull, match="no room left for /dev/full"):
        checkpoint._write(FULL, write)


def test_a_disk_that_is_full_for_a_while_costs_time_and_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, calls = checkpoint._write, itertools.count()

    def full_at_first(path: Path, write: Any) -> checkpoint.StagedFile:
        return plain(FULL if next(calls) == 2 else path, write)

    monkeypatch.setattr(checkpoint, "_write", full_at_first)
    store = FolderStore(tmp_path / "store")
    train_here(store, tmp_path, a_toy_job(epochs=1))
    (final,) = manifests(store)
    assert final.final and set(final.parts.values()) <= set(final.files)


class OneRank:
    """A rank of a group of two that exchange what rank 0 says by a list."""

    def __init__(self, rank: int, said: list[Any]) -> None:
        self.world, self.said = World(rank, rank, 2, 0, 2, "", 0), said

    def from_first(self, value: Any) -> Any:
        if self.world.is_first:
            self.said.append(value)
        return self.said[-1]


def test_what_the_disk_of_rank_0_says_ends_every_rank_alike() -> None:
    def fails() -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/scratch/resume")

    said = list[Any]()
    for rank in (0, 1):
        with pytest.raises(PermissionError, match="/scratch/resume"):
            done_by_first(cast(Group, OneRank(rank, said)), fails)
