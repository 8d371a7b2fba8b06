"""What the stages of `lead bench data` measure is what training does: shards at once, its own disk, its own workers.

No stage goes on past its deadline, and none measures the network but the one that is called so.
"""

import os
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lead_protocol.store.folder import FolderStore
from lead_testing.bytes_recipe import FailingStore, bytes_recipe
from lead_testing.data_faults import BytesSamples, build_test_cache, stack
from lead_trainer.bench import cold_cache
from lead_trainer.bench.advice import Kept, StageRate, advice
from lead_trainer.bench.cold_cache import WatchedCache, kept_of, measure_network
from lead_trainer.bench.warm_cache import loader_of, measure_decode, measure_disk, measure_hand_over, samples_here
from lead_trainer.commands import bench_data as cli_bench
from lead_trainer.commands.bench_data import Measured
from lead_trainer.contract.training_keys import TrainingKeys
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.session_cache import open_session_cache
from lead_trainer.data.shards_ahead import AT_ONCE

THREADS = 2


@pytest.fixture
def store(tmp_path: Path) -> FailingStore:
    return FailingStore(FolderStore(tmp_path / "store"))


class Bench:
    """A cache of some shards, and an empty session cache beside it."""

    def __init__(self, store: Any, folder: Path | None, backend: str = "packed", limit: int = 0) -> None:
        self.session = WatchedCache(open_session_cache(backend, store, folder, limit))
        self.reader = CacheReader(store, build_test_cache(store), self.session)
        self.samples = BytesSamples(self.reader)
        self.shards = [entry.object for entry in self.reader.manifest.shards]

    def network(self, seconds: float) -> cold_cache.FetchedSamples:
        return measure_network(self.samples, [self.reader], self.session, THREADS, seconds)


def test_the_network_is_measured_with_as_many_shards_at_once_as_an_epoch_fetches(
    store: FailingStore, tmp_path: Path
) -> None:
    bench, together, download = Bench(store, tmp_path / "ssd"), threading.Barrier(AT_ONCE), store.download
    begun: list[str] = []

    def at_once(key: str, path: Path, **expected: Any) -> None:
        begun.append(key)
        if len(begun) <= AT_ONCE:
            together.wait(30)
        download(key, path, **expected)

    store.download = at_once  # type: ignore[method-assign]
    rate = bench.network(60.0).rate
    assert len(begun) == len(bench.shards) and not together.broken and rate.samples_per_s > 0
    assert f"{len(begun)} of {len(begun)} shards" in rate.detail


def test_after_the_deadline_no_shard_is_begun_and_the_other_stages_read_what_is_there(
    store: FailingStore, tmp_path: Path
) -> None:
    bench = Bench(store, tmp_path / "ssd")
    fetched_samples = bench.network(0.0)
    assert f"{AT_ONCE} of {len(bench.shards)} shards" in fetched_samples.rate.detail and len(bench.shards) > 2 * AT_ONCE
    fetched = bench.session.stats().fetched_bytes
    store.reads.clear()
    disk = measure_disk(bench.session, fetched_samples, [bench.reader], THREADS, 0.1)
    here = samples_here(bench.samples, fetched_samples, THREADS, 0.1)
    config = TrainingKeys(num_threads=THREADS, batch_size=4)
    decode = measure_decode(here, config, 0.1)
    recipe = replace(bytes_recipe(), collate=stack)
    measure_hand_over(loader_of(recipe, config, here, cli_bench.torch.device("cpu")), config, 0.1)
    assert f"of {AT_ONCE} of {len(bench.shards)} shards" in disk.detail
    assert f"of {len(here.epoch_draw(0))} samples" in decode.detail and 0 < len(here) < len(bench.samples)
    assert store.reads == [] and bench.session.stats().fetched_bytes == fetched


def test_of_shards_that_do_not_fit_only_what_is_kept_is_read_from_the_disk(store: FailingStore, tmp_path: Path) -> None:
    sizes = [shard.size for shard in Bench(store, None).shards]
    bench = Bench(store, tmp_path / "ssd", limit=2 * max(sizes))
    fetched_samples = bench.network(60.0)
    assert f" 2 of {len(sizes)} shards" in fetched_samples.rate.detail
    store.reads.clear()
    assert measure_disk(bench.session, fetched_samples, [bench.reader], THREADS, 0.1).samples_per_s > 0
    assert store.reads == [] and len({shard.sha256 for shard, _ in fetched_samples.places}) == 2


def test_records_that_are_kept_one_by_one_are_measured_where_they_are_kept(store: FailingStore, tmp_path: Path) -> None:
    bench = Bench(store, tmp_path / "ssd", "diskcache")
    records = bench.reader.manifest.samples
    fetched_samples = bench.network(0.0)
    assert f"{THREADS} of {records} records, one by one" in fetched_samples.rate.detail
    here = samples_here(bench.samples, fetched_samples, THREADS, 0.0)
    store.reads.clear()
    assert (
        0 < len(here) < records
        and measure_disk(bench.session, fetched_samples, [bench.reader], 1, 0.1).samples_per_s > 0
    )
    for index in here.epoch_draw(0):
        here.load(int(index), 0)
    assert store.reads == []


def test_without_a_disk_records_are_streamed_and_none_is_on_one(store: FailingStore) -> None:
    bench = Bench(store, None)
    fetched_samples = bench.network(60.0)
    records = bench.reader.manifest.samples
    assert f"{records} of {records} records, one by one" in fetched_samples.rate.detail
    assert not fetched_samples.places
    assert samples_here(bench.samples, fetched_samples, THREADS, 0.1) is bench.samples


def test_what_a_node_keeps_follows_from_limit_volume_and_what_makes_way(
    store: FailingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(store, None)
    whole, free = sum(shard.size for shard in bench.shards), 10**15
    monkeypatch.setattr(cold_cache, "room_bytes", lambda folder, mark: free)
    assert kept_of([bench.reader], None, 0) == Kept(0.0, whole)
    assert kept_of([bench.reader], tmp_path, 0) == Kept(1.0, whole)
    assert kept_of([bench.reader], tmp_path, whole // 4).share == pytest.approx(0.25, rel=1e-3)
    free = -100
    assert kept_of([bench.reader], tmp_path, 0).share == 0
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards/of an earlier run").write_bytes(bytes(whole // 2 + 100))
    assert kept_of([bench.reader], tmp_path, 0).share == pytest.approx(0.5, rel=1e-3)


def test_decoding_is_measured_in_the_workers_that_the_loader_has(store: FailingStore, tmp_path: Path) -> None:
    samples, seen = Bench(store, tmp_path / "ssd").samples, tmp_path / "processes"
    seen.mkdir()

    class Noting(BytesSamples):
        def load(self, index: int, epoch: int) -> Any:
            (seen / str(os.getpid())).touch()
            return super().load(index, epoch)

    samples.__class__ = Noting
    for loader, kind, others in (("ring", "threads", 0), ("process", "processes", 2)):
        config = TrainingKeys.model_validate({"loader": loader, "num_threads": 2})
        rate = measure_decode(samples, config, 0.3)
        assert f"in each of 2 {kind}" in rate.detail and rate.samples_per_s > 0
        assert len({path.name for path in seen.iterdir()} - {str(os.getpid())}) == others
    rates = [StageRate(stage, 90) for stage in ("network", "hand-over")] + [StageRate("decode", 95)]
    detail = advice([*rates, StageRate("disk", 9e3), StageRate("step", 100)], 4, 8, "processes")
    assert "4 processes on 8 cores" in detail


def test_the_disk_that_is_measured_is_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[Path, Path | None]] = []

    def note(run: Any, caches: Any, folder: Path, disk: Path | None, seconds: float) -> Measured:
        found.append((folder, disk))
        stages = ("network", "disk", "decode", "hand-over", "step")
        return Measured([StageRate(stage, 1.0) for stage in stages], Kept())

    monkeypatch.setattr(cli_bench, "cache_store", lambda *_: FolderStore(tmp_path / "store"))
    monkeypatch.setattr(cli_bench, "measured", note)
    for wanted in (True, False):
        config = TrainingKeys(num_threads=2, use_training_session_cache=wanted)
        keys = SimpleNamespace(session_cache=str(tmp_path / "ssd"))
        run = SimpleNamespace(keys=keys, recipe=bytes_recipe(), config=config)
        monkeypatch.setattr(cli_bench, "local_run", lambda *_, run=run: run)
        cli_bench.bench_data([], [], {}, 1.0)
    assert [disk for _, disk in found] == [tmp_path / "ssd", None]
    assert found[0][0].parent == tmp_path / "ssd" and not list((tmp_path / "ssd").iterdir())
    assert not any(folder.exists() for folder, _ in found)
