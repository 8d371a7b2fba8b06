"""Single records in a diskcache: a limit keeps what is there, and an entry is bytes or nothing."""

import pickle
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diskcache
import pytest
from diskcache.core import MODE_PICKLE

from lead_protocol.manifests import StoredObject
from lead_testing.built_caches import build_and_publish
from lead_testing.bytes_recipe import MemoryTree
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.diskcache_backend import DiskcacheBackend
from lead_trainer.data.session_cache import DirectReads

RECORDS, RECORD_BYTES = 24, 50_000  # large enough for files of their own
Make = Callable[..., Any]
Place = tuple[StoredObject, int]


@pytest.fixture
def places(job: Make, store: Any, recipe: Any) -> list[Place]:
    """Shard and slot of every record."""
    tree = MemoryTree({f"r1/{frame}": bytes([frame]) * RECORD_BYTES for frame in range(RECORDS)})
    digest = build_and_publish(job(), store, tree, recipe, lambda record: None, part_bytes=5 * RECORD_BYTES).digest
    shards = CacheReader(store, digest).manifest.shards
    return [(entry.object, slot) for entry in shards for slot in range(entry.records)]


def data(cache: Any, place: Place) -> bytes:
    return bytes(cache.record(*place).fields["data"])


def entries(folder: Path) -> set[tuple[Any, ...]]:
    with sqlite3.connect(folder / "diskcache/cache.db") as database:
        return set(database.execute("SELECT rowid, key, store_time FROM Cache"))


def test_under_a_limit_every_epoch_finds_what_the_first_stored(store: Any, places: list[Place], tmp_path: Path) -> None:
    limit, noise = RECORDS * RECORD_BYTES // 2, random.Random(1)
    expected = {place: data(DirectReads(store), place) for place in places}
    cache = DiskcacheBackend(store, tmp_path / "ssd", limit)
    stored: list[set[Any]] = []
    for epoch in range(3):
        before = cache.stats()
        for place in noise.sample(places, len(places)):
            assert data(cache, place) == expected[place]
        hits = cache.stats().hits - before.hits
        assert RECORDS / 3 < hits <= RECORDS / 2 if epoch else hits == 0
        stored.append(entries(tmp_path / "ssd"))
        assert sum(path.stat().st_size for path in tmp_path.rglob("*.val")) <= limit
    assert stored[0] == stored[1] == stored[2] and not cache.stats().degraded


class Bomb:
    """Makes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("in_a_file", [False, True])
@pytest.mark.parametrize("limit", [0, 1])
def test_a_pickled_entry_is_fetched_again_and_never_unpickled(
    store: Any, places: list[Place], tmp_path: Path, in_a_file: bool, limit: int
) -> None:
    expected = data(DirectReads(store), places[0])
    data(DiskcacheBackend(store, tmp_path / "ssd"), places[0])
    bomb, folder = pickle.dumps(Bomb(tmp_path / "exploded")), tmp_path / "ssd/diskcache"
    with sqlite3.connect(folder / "cache.db") as database:
        (folder / "bomb.val").write_bytes(bomb)
        value = (None, "bomb.val") if in_a_file else (bomb, None)
        database.execute("UPDATE Cache SET mode = ?, value = ?, filename = ?", (MODE_PICKLE, *value))
    database.close()
    with diskcache.Cache(str(folder)) as plain:
        plain[next(iter(plain))]
    assert (tmp_path / "exploded").exists(), "diskcache itself would unpickle it"
    (tmp_path / "exploded").unlink()
    cache = DiskcacheBackend(store, tmp_path / "ssd", limit)
    assert [data(cache, places[0]) for _ in range(2)] == [expected] * 2
    assert not (tmp_path / "exploded").exists()
    assert cache.stats().misses == 1 and cache.stats().hits == 1, "the entry was replaced"
