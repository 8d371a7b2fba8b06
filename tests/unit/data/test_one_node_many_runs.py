"""What the runs of a node share: one fetch of every shard and table, however they start, die, or lose the disk."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lead_protocol.store.object_store import StoreFull
from lead_testing.built_caches import build_and_publish
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.diskcache_backend import DiskcacheBackend
from lead_trainer.data.packed_backend import CHECK_EVERY_S, PackedBackend
from lead_trainer.data.session_cache import RETRY_S, open_session_cache

Make = Callable[..., Any]


@pytest.fixture
def digest(job: Make, store: Any, tree: Any, recipe: Any) -> str:
    """A built cache of several shards."""
    done = build_and_publish(job(), store, tree, recipe, lambda record: None, part_bytes=150)
    store.reads.clear()
    return str(done.digest)


def everything(reader: CacheReader) -> dict[tuple[str, int], tuple[bytes, int]]:
    rows, metas = reader.rows("all"), reader.metas()
    return {
        (str(route), int(frame)): (
            bytes(reader.fields(int(sample))["data"]),
            metas.row(str(route), int(frame))["sum"],
        )
        for route, frame, sample in zip(rows.route, rows.frame, rows.sample, strict=True)
    }


def data_reads(store: Any) -> list[str]:
    """Reads of shards and metas; manifest and rows are small and read by each process."""
    return [key for key in store.reads if "/shards/" in key or "/metas/" in key]


@pytest.mark.parametrize("backend", ["packed", "diskcache"])
def test_a_second_run_on_the_node_fetches_no_shard_and_no_metas(
    backend: str, store: Any, digest: str, tmp_path: Path
) -> None:
    first = CacheReader(store, digest, open_session_cache(backend, store, tmp_path / "ssd", 0))
    expected = everything(first)
    fetched = sorted(data_reads(store))
    assert len([key for key in fetched if "/metas/" in key]) == len(set(first.manifest.metas))
    store.reads.clear()
    second = CacheReader(store, digest, open_session_cache(backend, store, tmp_path / "ssd", 0))
    assert everything(second) == expected
    assert data_reads(store) == [] and second.stats().fetched_bytes == 0


def test_two_runs_at_once_fetch_each_object_once(store: Any, digest: str, tmp_path: Path) -> None:
    results: list[Any] = []

    def run() -> None:
        results.append(everything(CacheReader(store, digest, PackedBackend(store, tmp_path / "ssd"))))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(results) == 4 and all(result == results[0] for result in results)
    assert len(data_reads(store)) == len(set(data_reads(store)))


def test_a_run_killed_while_it_fetches_leaves_the_other_a_sound_cache(store: Any, digest: str, tmp_path: Path) -> None:
    expected = everything(CacheReader(store, digest))
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        download = store.download

        def half(key: str, path: Path, *, size: int, sha256: str) -> None:
            if "/shards/00001" in key:
                path.with_name(path.name + ".dead.part").write_bytes(b"LDSHARD1")
                os.write(write_end, b"x")
                signal.pause()
            download(key, path, size=size, sha256=sha256)

        store.download = half
        try:
            everything(CacheReader(store, digest, PackedBackend(store, tmp_path / "ssd")))
        finally:
            os._exit(1)
    os.close(write_end)  # so that a child that ends early is not waited for
    assert os.read(read_end, 1) == b"x"
    os.close(read_end)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    cache = PackedBackend(store, tmp_path / "ssd", 1 << 20)
    assert everything(CacheReader(store, digest, cache)) == expected
    assert cache.stats().corrupt == 0 and not cache.stats().degraded


def test_a_wiped_disk_is_noticed_and_filled_again(store: Any, digest: str, tmp_path: Path) -> None:
    now = 0.0
    cache = PackedBackend(store, tmp_path / "ssd", clock=lambda: now)
    reader = CacheReader(store, digest, cache)
    expected = everything(reader)
    for path in (tmp_path / "ssd/shards").iterdir():
        path.unlink()
    assert everything(reader) == expected  # open files outlive their names
    now = CHECK_EVERY_S
    assert cache.stats().degraded
    assert everything(reader) == expected
    now += RETRY_S
    assert cache.stats().degraded  # until a shard is on the disk again
    assert everything(reader) == expected and not cache.stats().degraded
    held = [path for path in (tmp_path / "ssd/shards").iterdir() if path.suffix == ""]
    assert len(held) == len(reader.manifest.shards)


def test_diskcache_uses_a_disk_that_works_again(store: Any, digest: str, tmp_path: Path) -> None:
    now = 0.0
    (tmp_path / "ssd").write_text("not a folder")
    cache = DiskcacheBackend(store, tmp_path / "ssd", clock=lambda: now)
    reader = CacheReader(store, digest, cache)
    expected = everything(reader)
    assert cache.stats().degraded
    (tmp_path / "ssd").unlink()
    now = RETRY_S
    assert everything(reader) == expected and not cache.stats().degraded
    hits = cache.stats().hits
    assert everything(reader) == expected and cache.stats().hits == hits + len(expected)


def test_a_damaged_table_is_made_again(store: Any, digest: str, tmp_path: Path) -> None:
    expected = everything(CacheReader(store, digest, PackedBackend(store, tmp_path / "ssd")))
    (table,) = (tmp_path / "ssd/shards").glob(f"{digest}-*.arrow")
    data = bytearray(table.read_bytes())
    data[len(data) // 2] ^= 1
    table.write_bytes(bytes(data))
    store.reads.clear()
    assert everything(CacheReader(store, digest, PackedBackend(store, tmp_path / "ssd"))) == expected
    assert any("/metas/" in key for key in store.reads)


def test_a_full_disk_costs_memory_for_the_tables_and_nothing_else(store: Any, digest: str, tmp_path: Path) -> None:
    expected = everything(CacheReader(store, digest))
    (tmp_path / "ssd").write_text("not a folder")

    def full(*_: Any, **__: Any) -> None:
        raise StoreFull("no space left on device")

    store.download = full
    assert everything(CacheReader(store, digest, PackedBackend(store, tmp_path / "ssd"))) == expected
