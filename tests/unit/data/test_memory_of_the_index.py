"""What a process holds of every sample of a cache and of an epoch's order is a few bytes, whatever the collections."""

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from lead_protocol.manifests import CacheManifest, CollectionEntry, RouteCounts, ShardEntry, StoredObject, sha256_hex
from lead_protocol.object_keys import LOCAL_NAMESPACE, CacheKeys
from lead_protocol.store.folder import FolderStore
from lead_testing.data_faults import BytesSamples, stack
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.cache_tables import RowPlaces, collection_rows, write_table
from lead_trainer.data.loader import Loader
from lead_trainer.data.sample_places import SamplePlaces
from lead_trainer.data.small_ints import int_type, small
from lead_trainer.errors import BadData

SAMPLES, SHARD, ROUTE, BUCKETS = 1_000_000, 1000, 250, 20  # samples, of them a shard (128 kB each), frames a route
MOST_BYTES = 22  # a sample; 24 of 20 million, whose routes have numbers of 4 bytes
DIGEST = "1" * 64


def stored(store: FolderStore, name: str, data: bytes) -> StoredObject:
    key = f"{CacheKeys(LOCAL_NAMESPACE, DIGEST).prefix}{name}"
    store.put(key, data)
    return StoredObject(key=key, size=len(data), sha256=sha256_hex(data))


def large_cache(store: FolderStore) -> CacheManifest:
    """Writes the tables of a cache of a million samples in two collections, and no shard."""
    numbers = np.arange(SAMPLES)
    place = np.random.default_rng(0).permutation(SAMPLES)
    routes = pa.array([f"data/scenario/route_{number:05d}" for number in range(SAMPLES // ROUTE)])
    columns = {
        "bucket": numbers * BUCKETS // SAMPLES,
        "route": pa.DictionaryArray.from_arrays(pa.array((numbers // ROUTE).astype(np.int32)), routes),
        "frame": numbers % ROUTE, "sample": numbers, "shard": place // SHARD, "slot": place % SHARD,
    }  # fmt: skip
    table = pa.table(columns).replace_schema_metadata(
        {"lead.buckets": "[]", "lead.mixture": str([1.0] * BUCKETS), "lead.counters": "{}"}
    )
    item = stored(store, "rows.parquet", write_table(table))
    shard = StoredObject(key="shard", size=1, sha256="0" * 64)
    return CacheManifest(
        digest=DIGEST, recipe="bytes", builder="test", config={}, source_sha256="0" * 64,
        routes=RouteCounts(total=0, kept=0, reasons={}), routes_object=stored(store, "routes.parquet", b"none"),
        collections={
            name: CollectionEntry(object=item, samples=SAMPLES, buckets=BUCKETS) for name in ("all", "later")
        },
        shards=[ShardEntry(object=shard, records=SHARD)] * (SAMPLES // SHARD), metas=[], samples=SAMPLES, size_bytes=0,
        facts={},
    )  # fmt: skip


class NoRecords(BytesSamples):
    """Samples of which only places and order are asked."""

    def load(self, index: int, epoch: int) -> Any:
        shard, slot = self._cache._place(int(self._rows.sample[index]))
        return {"index": index, "shard": shard, "slot": slot}

    def fetch_shard(self, shard: int) -> bool:
        return True


def held_by(make: Callable[[], Any]) -> tuple[int, Any]:
    """Returns the bytes that what `make` returns keeps alive, and what it returns."""
    gc.collect()
    arrow = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        made = make()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    return held + pa.total_allocated_bytes() - arrow, made


def test_a_rank_that_trains_holds_few_bytes_a_sample(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    manifest = large_cache(store)
    store.put(CacheKeys(LOCAL_NAMESPACE, DIGEST).manifest, manifest.model_dump_json().encode())

    def training() -> Any:
        cache = CacheReader(store, DIGEST)
        batches = Loader(NoRecords(cache), stack, batch_size=8, seed=0, threads=1).batches(1)
        next(batches)
        return batches

    training().close()  # imports what is imported late
    held, batches = held_by(training)
    assert held <= MOST_BYTES * SAMPLES
    batches.close()


def test_a_row_knows_its_place_in_its_bucket() -> None:
    table = pa.table({name: [0, 0, 2, 2, 2] for name in ("bucket", "frame", "sample", "shard", "slot")})
    routes = pa.array(["r"] * 5).dictionary_encode()
    told = {"lead.buckets": '["a", "b", "c"]', "lead.mixture": "[1.0, 1.0, 1.0]", "lead.counters": "{}"}
    whole = table.append_column("route", routes).replace_schema_metadata(told)
    rows, _ = collection_rows("all", write_table(whole))
    assert [rows.position(row) for row in range(5)] == [0, 1, 0, 1, 2]
    with pytest.raises(BadData, match="collection all of the cache does not hold bucket after bucket"):
        collection_rows("all", write_table(whole.take([2, 0, 1, 3, 4])))


def test_rows_that_nobody_uses_any_more_are_not_kept(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    manifest = large_cache(store)
    store.put(CacheKeys(LOCAL_NAMESPACE, DIGEST).manifest, manifest.model_dump_json().encode())
    cache = CacheReader(store, DIGEST)
    rows = cache.rows("all")
    assert cache.rows("all") is rows
    held, _ = held_by(lambda: cache.rows("later") and None)
    assert held < SAMPLES
    assert cache._place(int(rows.sample[7])) == cache._place(7)


@pytest.mark.parametrize(
    ("values", "kind"),
    [([], np.int8), ([0, 127], np.int8), ([128], np.int16), ([-1, 32767], np.int16), ([32768], np.int32),
     ([-(2**31), 2**31 - 1], np.int32), ([2**31], np.int64)],
)  # fmt: skip
def test_columns_take_the_smallest_type_that_holds_them(values: list[int], kind: type) -> None:
    column: npt.NDArray[np.int64] = np.array(values, np.int64)
    assert small(column).tolist() == values and small(column).dtype == kind
    assert int_type(min(values, default=0), max(values, default=0)) == kind


@pytest.mark.parametrize(
    ("places", "told"),
    [(([4], [0], [0]), "sample 4 to 4, expected 0 to 3"), (([0], [2], [0]), "shard 2 to 2, expected 0 to 1"),
     (([0, 1], [0, 1], [0, -3]), "slot -3 to 0, expected 0 to 1")],
)  # fmt: skip
def test_a_place_outside_of_the_cache_is_bad_data(places: tuple[list[int], ...], told: str) -> None:
    shard = ShardEntry(object=StoredObject(key="shard", size=1, sha256="0" * 64), records=2)
    manifest = CacheManifest.model_construct(shards=[shard, shard], samples=4)
    with pytest.raises(BadData, match=rf"collection all of the cache names {told}"):
        SamplePlaces(manifest).add("all", RowPlaces(*(np.array(values) for values in places)))
