"""The shards of an epoch are on their way to the node before their samples are asked for, in the order of first use."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import StoreUnavailable
from lead_testing.bytes_recipe import FailingStore
from lead_testing.data_faults import BATCH, SAMPLES, BytesSamples, build_test_cache, stack
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.loader import Loader
from lead_trainer.data.packed_backend import PackedBackend
from lead_trainer.data.sample_order import in_turn

DEADLINE_S = 60.0


@pytest.fixture
def store(tmp_path: Path) -> FailingStore:
    """A store that counts its reads, with a cache of several shards."""
    return FailingStore(FolderStore(tmp_path / "store"))


@pytest.mark.parametrize("start_step", [0, 5])
def test_one_batch_is_enough_for_the_rest_of_the_epoch_to_be_fetched_in_its_order(
    store: FailingStore, tmp_path: Path, start_step: int
) -> None:
    cache = CacheReader(store, build_test_cache(store), PackedBackend(store, tmp_path / "ssd"))
    samples = BytesSamples(cache)
    loader = Loader(samples, stack, batch_size=BATCH, seed=1, threads=1, batches_ahead=1)
    rest = np.concatenate(list(loader.sample_indices(0, start_step)))
    expected = [cache.manifest.shards[number].object.key for number in in_turn(samples.shards_of(rest))]
    assert len(expected) > 2
    batches = loader.batches(0, start_step)
    next(batches)
    wait_for(lambda: [key for key in store.reads if "/shards/" in key] == expected)
    assert cache.stats().hits < SAMPLES / 2
    batches.close()
    cache.close()


def test_a_store_that_is_away_while_it_fetches_ahead_costs_no_sample(store: FailingStore, tmp_path: Path) -> None:
    cache = CacheReader(store, build_test_cache(store), PackedBackend(store, tmp_path / "ssd"))
    asked: list[int] = []

    class Away(BytesSamples):
        def fetch_shard(self, shard: int) -> None:
            asked.append(shard)
            raise StoreUnavailable("connection refused")

    loader = Loader(Away(cache), stack, batch_size=BATCH, seed=1)
    found = np.concatenate([batch["index"].numpy() for batch in loader.batches(0)])
    assert sorted(found) == list(range(SAMPLES))
    wait_for(lambda: sorted(asked) == list(range(len(cache.manifest.shards))))


def wait_for(seen: Callable[[], bool]) -> None:
    """Waits until `seen`; fails after the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.01)
