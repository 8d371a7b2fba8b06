"""The shards of an epoch are on their way to the node before their samples are asked for, in the order of first use."""

import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lead_protocol.manifests import StoredObject
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import StoreFull, StoreUnavailable
from lead_testing.bytes_recipe import FailingStore
from lead_testing.data_faults import BATCH, SAMPLES, BytesSamples, build_test_cache, stack
from lead_testing.operator_process import wait_for
from lead_trainer.contract.samples import Samples
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.loader import Loader
from lead_trainer.data.packed_backend import PackedBackend
from lead_trainer.data.sample_order import in_turn
from lead_trainer.data.session_cache import RETRY_S
from lead_trainer.data.shards_ahead import AT_ONCE, ShardsAhead
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.data_sources import CARLA, NAVSIM
from lead_trainer.recipes.lead.dataset_mix import MixedSamples

DEADLINE_S = 60.0


@pytest.fixture
def store(tmp_path: Path) -> FailingStore:
    """A store that counts its reads, with a cache of several shards."""
    return FailingStore(FolderStore(tmp_path / "store"))


@pytest.mark.parametrize("start_step", [0, 5])
def test_one_batch_is_enough_for_the_rest_of_the_epoch_to_be_fetched(
    store: FailingStore, tmp_path: Path, start_step: int
) -> None:
    cache = CacheReader(store, build_test_cache(store), PackedBackend(store, tmp_path / "ssd"))
    samples = BytesSamples(cache)
    loader = Loader(samples, stack, batch_size=BATCH, seed=1, threads=1, batches_ahead=1)
    rest = np.concatenate(list(loader.sample_indices(0, start_step)))
    expected = [cache.manifest.shards[number].object.key for number in in_turn(samples.shards_of(rest))]
    assert len(expected) > AT_ONCE
    batches = loader.batches(0, start_step)
    next(batches)
    wait_for(
        "every shard of the rest", lambda: sorted(key for key in store.reads if "/shards/" in key) == sorted(expected)
    )
    assert cache.stats().hits < SAMPLES / 2
    batches.close()
    cache.close()


class Shards(Samples):
    """Samples of which nothing but their shards is looked at."""

    def __len__(self) -> int:
        return 0

    def epoch_draw(self, epoch: int) -> np.ndarray:
        return np.arange(0)

    def load(self, index: int, epoch: int) -> dict[str, Any]:
        raise AssertionError("no sample is loaded")


def test_shards_are_asked_for_in_the_order_of_first_use_and_again_where_they_did_not_come() -> None:
    answers: dict[int, list[bool | Exception]] = {2: [False, True], 7: [StoreUnavailable("connection refused"), True]}
    asked: list[int] = []
    second = threading.Event()

    class Source(Shards):
        def shards_of(self, indices: np.ndarray) -> np.ndarray:
            return indices // 10

        def fetch_shard(self, shard: int) -> bool:
            asked.append(shard)
            if shard == 2:
                second.set()
            if shard == 7:  # of two threads one waits, so that shard 0 is not taken before 2 is noted
                assert second.wait(DEADLINE_S)
            answer = answers[shard].pop(0) if answers.get(shard) else True
            if isinstance(answer, Exception):
                raise answer
            return answer

    order = np.array([95, 21, 96, 70, 71, 20, 4])
    ahead = ShardsAhead(Source(), order, again_s=0.0)
    wait_for("two shards to be asked for again", lambda: sorted(asked) == [0, 2, 2, 7, 7, 9])
    ahead.stop()
    assert asked[0] == 9 and asked.index(2) < asked.index(0)


def test_the_first_shard_has_the_link_for_itself() -> None:
    events: list[tuple[str, int]] = []
    second = threading.Event()

    class Source(Shards):
        def shards_of(self, indices: np.ndarray) -> np.ndarray:
            return indices

        def fetch_shard(self, shard: int) -> bool:
            events.append(("begin", shard))
            if len(events) == 1:
                assert not second.wait(0.2)
            else:
                second.set()
            events.append(("end", shard))
            return True

    ahead = ShardsAhead(Source(), np.array([3, 1, 2]))
    wait_for("every shard", lambda: len(events) == 6)
    ahead.stop()
    assert events[:2] == [("begin", 3), ("end", 3)]


def test_a_store_that_is_away_while_it_fetches_ahead_costs_no_sample(store: FailingStore, tmp_path: Path) -> None:
    cache = CacheReader(store, build_test_cache(store), PackedBackend(store, tmp_path / "ssd"))
    asked: list[int] = []

    class Away(BytesSamples):
        def fetch_shard(self, shard: int) -> bool:
            asked.append(shard)
            raise StoreUnavailable("connection refused")

        def load(self, index: int, epoch: int) -> dict[str, Any]:
            wait_for("every thread to have asked", lambda: len(asked) == AT_ONCE)
            return super().load(index, epoch)

    loader = Loader(Away(cache), stack, batch_size=BATCH, seed=1)
    found = np.concatenate([batch["index"].numpy() for batch in loader.batches(0)])
    assert sorted(found) == list(range(SAMPLES))
    assert len(asked) == AT_ONCE


@pytest.mark.parametrize("processes", [1, 8])
def test_who_waited_for_a_shard_of_a_store_that_is_away_does_not_wait_as_long_again(
    store: FailingStore, tmp_path: Path, processes: int
) -> None:
    digest = build_test_cache(store)
    tries, let = [], threading.Event()

    class Away(FailingStore):
        def download(self, key: str, path: Path, *, size: int, sha256: str) -> None:
            tries.append(key)
            let.wait(DEADLINE_S)
            raise StoreUnavailable("connection refused")

    backends = [PackedBackend(Away(store.inner), tmp_path / "ssd") for _ in range(processes)]
    shard: StoredObject = CacheReader(store, digest).manifest.shards[0].object
    errors: list[BaseException] = []

    def read(backend: PackedBackend) -> None:
        try:
            backend.fetch(shard)
        except StoreUnavailable as error:
            errors.append(error)

    threads = [threading.Thread(target=read, args=(backends[n % processes],), daemon=True) for n in range(8)]
    for thread in threads:
        thread.start()
    # What tells a thread afterwards whether it had been waiting: a count of its process, a time of its node.
    noted = ("_reader", "times") if processes == 1 else ("_fetched", "begin")
    wait_for("everybody to wait for one", lambda: len(tries) == 1 and all(_has(*noted, thread) for thread in threads))
    now = time.time_ns()
    wait_for("the clock of files, which goes on in steps", lambda: _time_of_files(tmp_path) > now, poll_s=0.001)
    let.set()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert len(errors) == 8
    assert len(tries) == 1


def test_shards_are_fetched_ahead_again_once_a_degraded_minute_is_over(store: FailingStore, tmp_path: Path) -> None:
    now, full = 0.0, True

    class FullAtFirst(FailingStore):
        def download(self, key: str, path: Path, *, size: int, sha256: str) -> None:
            if full:
                raise StoreFull("no space left on device")
            super().download(key, path, size=size, sha256=sha256)

    behind = FullAtFirst(store.inner)
    cache = CacheReader(behind, build_test_cache(store), PackedBackend(behind, tmp_path / "ssd", clock=lambda: now))
    asked: list[int] = []

    class Asked(BytesSamples):
        def fetch_shard(self, shard: int) -> bool:
            asked.append(shard)
            return super().fetch_shard(shard)

    samples = Asked(cache)
    ahead = ShardsAhead(samples, samples.epoch_draw(0), again_s=0.01)
    wait_for("shards to be asked for again", lambda: len(asked) > 3 * AT_ONCE)
    assert cache.stats().degraded and not _shards_in(tmp_path / "ssd")
    full, now = False, RETRY_S
    wait_for("every shard", lambda: len(_shards_in(tmp_path / "ssd")) == len(cache.manifest.shards))
    ahead.stop()
    assert not cache.stats().degraded


def test_shards_over_a_full_limit_are_asked_for_again_and_cost_no_sample(store: FailingStore, tmp_path: Path) -> None:
    digest = build_test_cache(store)
    limit = 2 * max(entry.object.size for entry in CacheReader(store, digest).manifest.shards)
    cache = CacheReader(store, digest, PackedBackend(store, tmp_path / "ssd", limit))
    loader = Loader(BytesSamples(cache), stack, batch_size=BATCH, seed=1, threads=2)
    found = np.concatenate([batch["index"].numpy() for batch in loader.batches(0)])
    assert sorted(found) == list(range(SAMPLES))
    assert len(_shards_in(tmp_path / "ssd")) == 2 and not cache.stats().degraded


def test_mixed_caches_number_their_shards_through_and_each_fetches_its_own(store: FailingStore, tmp_path: Path) -> None:
    digest = build_test_cache(store)
    caches = [CacheReader(store, digest, PackedBackend(store, tmp_path / name)) for name in ("one", "two")]
    parts: Any = {CARLA: [BytesSamples(caches[0])], NAVSIM: [BytesSamples(caches[1])]}
    mixed = MixedSamples(load_config({"LTF": True, "use_navsim_data": True}), parts)
    shards = mixed.shards_of(np.arange(len(mixed)))
    assert not set(shards[:SAMPLES]) & set(shards[SAMPLES:])
    for start, cache in zip((0, SAMPLES), caches, strict=True):
        for index in (0, SAMPLES // 2, SAMPLES - 1):
            assert mixed.fetch_shard(int(shards[start + index]))
            fetched = cache.stats().fetched_bytes
            mixed.load(start + index, 0)
            assert cache.stats().fetched_bytes == fetched, "the sample lies in the shard that was fetched"
    folders = [_shards_in(tmp_path / name) for name in ("one", "two")]
    wanted = [{shards[start + index] for index in (0, SAMPLES // 2, SAMPLES - 1)} for start in (0, SAMPLES)]
    assert [len(folder) for folder in folders] == [len(each) for each in wanted]


def _shards_in(folder: Path) -> list[str]:
    return [path.name for path in (folder / "shards").iterdir() if len(path.name) == 64]


def _has(function: str, local: str, thread: threading.Thread) -> bool:
    """Tells whether a thread is so far within a function that a local variable of it has its value."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    return frame is not None and local in frame.f_locals


def _time_of_files(folder: Path) -> int:
    (folder / "touched").touch()
    return (folder / "touched").stat().st_mtime_ns
