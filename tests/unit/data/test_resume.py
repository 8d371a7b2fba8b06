"""A run killed after any step goes on with the very samples, and the very bytes, it would have had."""

import hashlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lead_protocol.store.folder import FolderStore
from lead_testing.data_faults import BATCH, BytesSamples, build_test_cache, stack
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.loader import Loader
from lead_trainer.data.packed_backend import PackedBackend

EPOCHS = 2
STEPS = 12  # an epoch

Row = tuple[int, str]  # sample, digest of its augmented bytes


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> tuple[FolderStore, str, Path]:
    store = FolderStore(tmp_path_factory.mktemp("store"))
    return store, build_test_cache(store), tmp_path_factory.mktemp("node")


def opened(cache: tuple[FolderStore, str, Path], *, rank: int = 0, world: int = 1, threads: int = 1) -> Loader:
    store, digest, folder = cache
    reader = CacheReader(store, digest, PackedBackend(store, folder))
    return Loader(BytesSamples(reader), stack, batch_size=BATCH, seed=1, rank=rank, world_size=world, threads=threads)


def rows_from(loader: Loader, step: int) -> Iterator[list[Row]]:
    """Yields the rows of every batch from global step `step` to the end of the last epoch."""
    for epoch in range(step // STEPS, EPOCHS):
        for batch in loader.batches(epoch, step % STEPS if epoch == step // STEPS else 0):
            digests = [hashlib.sha256(row.numpy().tobytes()).hexdigest() for row in batch["data"]]
            yield list(zip(batch["index"].tolist(), digests, strict=True))


def merged(ranks: list[list[list[Row]]]) -> list[list[Row]]:
    """Puts the shares of all ranks back into global batches: rank r has every world-th row from r on."""
    return [[row for rows in zip(*shares, strict=True) for row in rows] for shares in zip(*ranks, strict=True)]


@pytest.fixture(scope="module")
def uninterrupted(cache: tuple[FolderStore, str, Path]) -> list[list[Row]]:
    whole = list(rows_from(opened(cache), 0))
    assert len(whole) == EPOCHS * STEPS and whole[:STEPS] != whole[STEPS:]
    return whole


@pytest.mark.parametrize("step", [*range(0, EPOCHS * STEPS, 5), STEPS, EPOCHS * STEPS - 1])
@pytest.mark.parametrize("world, threads", [(1, 3), (2, 1), (4, 2), (8, 1)])
def test_any_world_size_and_thread_count_goes_on_where_another_stopped(
    cache: tuple[FolderStore, str, Path], uninterrupted: list[list[Row]], step: int, world: int, threads: int
) -> None:
    ranks = [list(rows_from(opened(cache, rank=rank, world=world, threads=threads), step)) for rank in range(world)]
    assert merged(ranks) == uninterrupted[step:]


@pytest.mark.parametrize("killed_after", [1, 7, STEPS, STEPS + 5])
def test_a_run_killed_after_a_step_and_resumed_by_two_ranks_is_the_uninterrupted_run(
    cache: tuple[FolderStore, str, Path], uninterrupted: list[list[Row]], killed_after: int, tmp_path: Path
) -> None:
    child = os.fork()
    if child == 0:
        try:
            with (tmp_path / "seen").open("w") as file:
                for done, rows in enumerate(rows_from(opened(cache, threads=2), 0), start=1):
                    print(*(part for row in rows for part in row), file=file, flush=True)
                    if done == killed_after:
                        os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    words = [line.split() for line in (tmp_path / "seen").read_text().splitlines()]
    before = [[(int(line[at]), line[at + 1]) for at in range(0, len(line), 2)] for line in words]
    after = merged([list(rows_from(opened(cache, rank=rank, world=2, threads=3), killed_after)) for rank in (0, 1)])
    assert before + after == uninterrupted
