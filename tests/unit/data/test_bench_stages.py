"""What the stages of `lead bench data` measure is what training does: shards at once, its own disk, its own workers."""

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lead_protocol.store.folder import FolderStore
from lead_testing.bytes_recipe import FailingStore
from lead_testing.data_faults import BytesSamples, build_test_cache
from lead_trainer import cli_bench
from lead_trainer.cli_bench import StageRate
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.session_cache import open_session_cache
from lead_trainer.data.shards_ahead import AT_ONCE

THREADS = SimpleNamespace(loader="ring", loader_threads=2)


@pytest.fixture
def store(tmp_path: Path) -> FailingStore:
    return FailingStore(FolderStore(tmp_path / "store"))


def reader_of(store: Any, folder: Path, backend: str = "packed", limit: int = 0) -> CacheReader:
    return CacheReader(store, build_test_cache(store), open_session_cache(backend, store, folder, limit))


def test_the_network_is_measured_with_as_many_shards_at_once_as_an_epoch_fetches(
    store: FailingStore, tmp_path: Path
) -> None:
    reader, together, download = reader_of(store, tmp_path / "ssd"), threading.Barrier(AT_ONCE), store.download
    begun: list[str] = []

    def at_once(key: str, path: Path, **expected: Any) -> None:
        begun.append(key)
        if len(begun) <= AT_ONCE:
            together.wait(30)
        download(key, path, **expected)

    store.download = at_once  # type: ignore[method-assign]
    rate = cli_bench._network([reader], THREADS, 1.0)  # type: ignore[arg-type]
    assert len(begun) == len(reader.manifest.shards) and not together.broken and rate.samples_per_s > 0


@pytest.mark.parametrize("backend", ["packed", "diskcache"])
def test_only_what_was_fetched_counts(store: FailingStore, tmp_path: Path, backend: str) -> None:
    size = max(entry.object.size for entry in reader_of(store, tmp_path / "other").manifest.shards)
    reader = reader_of(store, tmp_path / "ssd", backend, 2 * size if backend == "packed" else 0)
    rate = cli_bench._network([reader], THREADS, 60.0)  # type: ignore[arg-type]
    stats, whole = reader.stats(), sum(entry.object.size for entry in reader.manifest.shards)
    assert 0 < stats.fetched_bytes <= 2 * size if backend == "packed" else stats.misses == reader.manifest.samples
    share = round(100 * stats.fetched_bytes / whole)
    assert f" {share}% of " in rate.detail and (share < 40 if backend == "packed" else share > 90)


def test_decoding_is_measured_in_the_workers_that_the_loader_has(store: FailingStore, tmp_path: Path) -> None:
    samples, seen = BytesSamples(reader_of(store, tmp_path / "ssd")), tmp_path / "processes"
    seen.mkdir()

    class Noting(BytesSamples):
        def load(self, index: int, epoch: int) -> Any:
            (seen / str(os.getpid())).touch()
            return super().load(index, epoch)

    samples.__class__ = Noting
    for loader, kind, others in (("ring", "threads", 0), ("process", "processes", 2)):
        shape: Any = SimpleNamespace(loader=loader, loader_threads=2)
        rate = cli_bench._decode(SimpleNamespace(samples=samples), shape, 0.3)  # type: ignore[arg-type]
        assert f"in each of 2 {kind}" in rate.detail and rate.samples_per_s > 0
        assert len({path.name for path in seen.iterdir()} - {str(os.getpid())}) == others
    rates = [StageRate(stage, 90) for stage in ("network", "hand-over")] + [StageRate("decode", 95)]
    told = cli_bench.advice([*rates, StageRate("disk", 9e3), StageRate("step", 100)], 4, 8, "processes")
    assert "4 processes on 8 cores" in told


def test_the_disk_that_is_measured_is_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Path] = []

    def note(run: Any, shape: Any, caches: Any, folder: Path, seconds: float) -> list[StageRate]:
        measured.append(folder)
        return [StageRate(stage, 1.0) for stage in ("network", "disk", "decode", "hand-over", "step")]

    recipe = SimpleNamespace(shape=lambda config: THREADS)
    run = SimpleNamespace(keys=SimpleNamespace(session_cache=str(tmp_path / "ssd")), recipe=recipe, config=None)
    monkeypatch.setattr(cli_bench, "local_run", lambda *_: run)
    monkeypatch.setattr(cli_bench, "cache_store", lambda *_: FolderStore(tmp_path / "store"))
    monkeypatch.setattr(cli_bench, "_measured", note)
    cli_bench.bench_data([], [], {}, 1.0)
    assert [folder.parent for folder in measured] == [tmp_path / "ssd"] and not list((tmp_path / "ssd").iterdir())
