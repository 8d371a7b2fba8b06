"""The session caches of all ranks are told, not of rank 0 alone: each step waits for the rank whose disk is full."""

from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lead_protocol.exit_codes import ExitCode
from lead_protocol.job import DatasetSource, TrainJob
from lead_protocol.progress_record import MAX_COUNT, MAX_DEGRADED_RANKS, ProgressRecord
from lead_protocol.store.folder import FolderStore
from lead_testing.data_faults import build_test_cache
from lead_testing.toy_jobs import a_toy_job, progress_record
from lead_testing.toy_runs import session_cache_of, train_group, train_here
from lead_trainer.data.loader_stats import LoaderStats
from lead_trainer.engine.reporting.loading_statistics import LoadingStatistics
from lead_trainer.world import World

SAMPLES, EPOCHS, STEPS = 48, 4, 24


@pytest.fixture
def job(tmp_path: Path) -> TrainJob:
    """A job that reads a record of a cache for each of its samples."""
    digest = build_test_cache(FolderStore(tmp_path / "store"), namespace="team-a")
    return a_toy_job(epochs=EPOCHS).model_copy(update={"datasets": [DatasetSource(name="towns", digest=digest)]})


def told(folder: Path) -> ProgressRecord:
    """Returns the last report of attempt 1."""
    return progress_record(FolderStore(folder / "store"))


def test_a_disk_that_one_rank_cannot_use_is_told_by_its_rank_and_all_reads_are_counted(
    tmp_path: Path, job: TrainJob
) -> None:
    session_cache_of(tmp_path, 1).write_text("no folder can be made here")
    assert train_group(tmp_path, job, 2) == [ExitCode.DONE] * 2
    record = told(tmp_path)
    assert (record.cache_degraded, record.cache_degraded_ranks) == (True, [1])
    assert record.cache_hits + record.cache_misses == SAMPLES * EPOCHS
    assert record.cache_misses >= SAMPLES * EPOCHS / 2  # rank 1 reads all of its samples from the store, every epoch
    assert record.cache_fetched_bytes > 0 and record.cache_fetch_s > 0 and record.loading_s["load"] > 0


def test_where_every_disk_serves_no_rank_is_named_and_the_figures_are_in_the_event_file(
    tmp_path: Path, job: TrainJob
) -> None:
    train_here(FolderStore(tmp_path / "store"), tmp_path, job, session_cache=session_cache_of(tmp_path, 0))
    record = told(tmp_path)
    assert (record.cache_degraded, record.cache_degraded_ranks) == (False, [])
    assert record.cache_hits + record.cache_misses == SAMPLES * EPOCHS
    read = EventAccumulator(str(tmp_path / "scratch/tensorboard"))
    read.Reload()
    last = {tag: read.Scalars(tag)[-1] for tag in read.Tags()["scalars"]}
    assert (last["cache/degraded"].value, last["cache/second_mb"].value) == (0.0, 0.0)
    assert last["cache/fetched_mb"].value == pytest.approx(record.cache_fetched_bytes / 1e6)
    assert [read.Scalars("cache/hit_rate")[step].value for step in (0, -1)] == [0.0, 1.0]
    steps = [event.step for event in read.Scalars("data/load_ms")]
    assert steps == [event.step for event in read.Scalars("data/fetch_ms")] == list(range(1, STEPS + 1))


def test_without_a_session_cache_no_read_hits_or_misses_it(tmp_path: Path, job: TrainJob) -> None:
    train_here(FolderStore(tmp_path / "store"), tmp_path, job)
    record = told(tmp_path)
    assert (record.cache_hits, record.cache_misses) == (0, 0)
    assert record.cache_fetched_bytes > 0
    read = EventAccumulator(str(tmp_path / "scratch/tensorboard"))
    read.Reload()
    assert "cache/fetched_mb" in read.Tags()["scalars"] and "cache/hit_rate" not in read.Tags()["scalars"]


class Counted:
    """A dataset and a loader of which only the figures are asked."""

    session = object()

    def __init__(self) -> None:
        self.now: dict[str, Any] = {"cache_fetch_s": 0.0}
        self.batches = 0

    def counters(self) -> dict[str, Any]:
        return self.now

    def stats(self) -> LoaderStats:
        return LoaderStats(load_s=0.5, batches=self.batches)


def figures(world: World, counted: Any) -> LoadingStatistics:
    return LoadingStatistics(world, counted, counted)


def sums(*rows: list[float]) -> list[float]:
    return [sum(column) for column in zip(*rows, strict=True)]


def test_rates_are_of_what_came_since_the_last_look_and_nothing_is_said_of_nothing() -> None:
    counted = Counted()
    shown = figures(World(), counted)
    assert set(shown.scalars()) == {"cache/degraded", "cache/fetched_mb", "cache/second_mb"}
    counted.batches = 4
    counted.now = {"cache_reads": 40, "cache_first_reads": 40, "cache_fetched": 10, "cache_fetched_bytes": 2_500_000,
                   "cache_fetch_s": 0.2, "cache_second_bytes": 500_000, "cache_degraded": True}  # fmt: skip
    assert shown.scalars() == pytest.approx(
        {"cache/hit_rate": 0.75, "data/fetch_ms": 50.0, "cache/fetched_mb": 2.5, "cache/second_mb": 0.5,
         "cache/degraded": 1.0}
    )  # fmt: skip
    # Forty records were there when the run began; now a shard was brought.
    counted.now = {**counted.now, "cache_reads": 50, "cache_first_reads": 50, "cache_fetched": 30}
    assert shown.scalars()["cache/hit_rate"] == 0.0
    counted.batches, counted.now = 8, {**counted.now, "cache_reads": 90, "cache_degraded": False}
    assert shown.scalars() == pytest.approx(
        {"cache/hit_rate": 1.0, "data/fetch_ms": 0.0, "cache/fetched_mb": 2.5, "cache/second_mb": 0.5,
         "cache/degraded": 0.0}
    )  # fmt: skip


def test_what_one_rank_brings_and_others_read_is_missed_once() -> None:
    """A shard of 100 records for two ranks: in the first epoch each reads 40 of them, in the second the other's."""
    for reads, hits in ((40, 0), (80, 60)):
        group = []
        for rank in (0, 1):
            counted = Counted()
            counted.now = {"cache_reads": reads, "cache_first_reads": reads, "cache_fetched": 100 * (rank == 0)}
            group.append(figures(World(rank=rank, world_size=2), counted))
        group[0].take(sums(*(one.row() for one in group)))
        told = group[0].reported()
        assert (told["cache_hits"], told["cache_misses"]) == (hits, 2 * reads - hits)


def test_sums_too_large_for_a_report_and_many_ranks_are_told_as_far_as_it_goes() -> None:
    ranks, counted = MAX_DEGRADED_RANKS + 9, Counted()
    counted.now = {"cache_fetched_bytes": MAX_COUNT, "cache_degraded": True, "cache_fetch_s": 1.0}
    group = [figures(World(rank=rank, world_size=ranks), counted) for rank in range(ranks)]
    group[0].take(sums(*(one.row() for one in group)))
    record = {**group[0].reported(), "attempt": 1, "seq": 0, "phase": "Training", "epoch": 0, "epochs": 1, "step": 0}
    parsed = ProgressRecord.model_validate({**record, "steps": 1})
    assert parsed.cache_fetched_bytes == MAX_COUNT and parsed.cache_fetch_s == ranks
    assert parsed.cache_degraded_ranks == list(range(MAX_DEGRADED_RANKS))
    assert group[0].scalars()["cache/degraded"] == ranks
