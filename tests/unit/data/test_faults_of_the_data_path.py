"""Whatever happens to disk, network or process, an epoch is the clean run's, byte for byte."""

import os
import random
import re
import resource
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lead_protocol.exit_codes import ExitCode
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import ObjectStore, StoreUnavailable
from lead_protocol.store.s3 import S3Store
from lead_protocol.store.s3_target import MIB, S3Limits
from lead_testing.bytes_recipe import FailingStore
from lead_testing.data_faults import (
    BATCH,
    DAMAGES,
    READ_FAULTS,
    SAMPLES,
    BytesSamples,
    build_test_cache,
    damage_shards,
    deliver,
    kill_while_filling,
    spoil_reads,
    stack,
)
from lead_testing.minio_server import MinioServer, minio_program
from lead_testing.store_proxy import Fault, StoreProxy
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.loader import LoaderLimits
from lead_trainer.data.packed_backend import PackedBackend
from lead_trainer.data.process_loader import loader_named
from lead_trainer.data.stored_manifest import REBUILD
from lead_trainer.engine.reporting.progress import MESSAGE_CHARS
from lead_trainer.errors import BadData, exit_code_of

QUICK = S3Limits(read_s=2, total_s=20, part_bytes=5 * MIB, first_pause_s=0.01, longest_pause_s=0.1,
                 longest_retry_after_s=0.05)  # fmt: skip


@pytest.fixture(scope="module")
def in_folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[ObjectStore, str, str]:
    """A store with a cache, its digest, and the digest of a clean epoch."""
    store = FolderStore(tmp_path_factory.mktemp("store"))
    digest = build_test_cache(store)
    return store, digest, deliver(store, digest, None).digest


@pytest.fixture(scope="module")
def behind_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[S3Store, str, str, StoreProxy]]:
    """The same in MinIO, read through a proxy."""
    bucket = f"faults-{secrets.token_hex(4)}"
    with (
        MinioServer(minio_program(), tmp_path_factory.mktemp("minio")) as server,
        StoreProxy(server.endpoint) as proxy,
    ):
        server.admin().make_bucket(bucket)
        store = S3Store(server.target(bucket, endpoint=proxy.endpoint), QUICK)
        digest = build_test_cache(store)
        yield store, digest, deliver(store, digest, None).digest, proxy


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("backend", ["packed", "diskcache"])
@pytest.mark.parametrize("loader", ["ring", "process"])
def test_each_loader_over_each_cache_delivers_one_epoch_cold_and_warm_and_counts_it(
    in_folder: tuple[ObjectStore, str, str], tmp_path: Path, loader: str, backend: str
) -> None:
    store, digest, clean = in_folder
    cold = deliver(store, digest, tmp_path / "ssd", backend=backend, loader=loader, threads=2)
    warm = deliver(store, digest, tmp_path / "ssd", backend=backend, loader=loader, threads=2)
    assert (cold.digest, warm.digest) == (clean, clean)
    assert cold.stats.misses > 0 and cold.stats.fetched_bytes > 0
    # Whole shards fetched ahead may be there before the first sample asks.
    assert cold.stats.fetch_s > 0 or (loader, backend) == ("ring", "packed")
    assert (warm.stats.hits, warm.stats.misses, warm.stats.fetched_bytes) == (SAMPLES, 0, 0)


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_on_the_disk_is_found_and_fetched_again(
    in_folder: tuple[ObjectStore, str, str], tmp_path: Path, kind: str
) -> None:
    store, digest, clean = in_folder
    for seed in range(4):
        assert deliver(store, digest, tmp_path / "ssd").digest == clean
        damage_shards(tmp_path / "ssd", kind, random.Random(seed))
        found = deliver(store, digest, tmp_path / "ssd")
        assert found.digest == clean and found.stats.corrupt >= 1


@pytest.mark.parametrize("fault", READ_FAULTS)
def test_faults_of_the_store_change_no_sample(
    behind_proxy: tuple[S3Store, str, str, StoreProxy], tmp_path: Path, fault: Fault
) -> None:
    store, digest, clean, proxy = behind_proxy
    spoil_reads(proxy, fault, random.Random(fault), every=3)
    try:
        assert deliver(store, digest, tmp_path / "ssd").digest == clean
        assert proxy.seen.count("GET", fault=fault) > 0
    finally:
        proxy.clear()


def test_a_fill_that_is_killed_anywhere_leaves_only_whole_shards(
    in_folder: tuple[ObjectStore, str, str], tmp_path: Path
) -> None:
    store, digest, clean = in_folder
    noise = random.Random(1)
    for number in range(6):
        folder = tmp_path / f"ssd{number}"
        kill_while_filling(lambda: store, digest, folder, noise.randrange(1, 200_000))
        found = deliver(store, digest, folder)
        assert found.digest == clean and found.stats.corrupt == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("backend", ["packed", "diskcache"])
def test_a_disk_that_takes_no_more_bytes_means_streaming(
    in_folder: tuple[ObjectStore, str, str], tmp_path: Path, backend: str
) -> None:
    """In a child, because other threads of this process write files of their own."""
    store, digest, clean = in_folder
    read_end, write_end = os.pipe()
    if (child := os.fork()) == 0:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # Python ignores SIGXFSZ: writes end in EFBIG
            found = deliver(store, digest, tmp_path / "ssd", backend=backend)
            os.write(write_end, f"{found.digest} {found.stats.degraded}".encode())
        except BaseException as error:
            os.write(write_end, repr(error).encode()[:4000])
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as told:
        assert told.read() == f"{clean} True"
    os.waitpid(child, 0)
    again = deliver(store, digest, tmp_path / "ssd", backend=backend)
    assert again.digest == clean and not again.stats.degraded


def test_runs_that_evict_each_others_shards_all_get_every_sample(
    in_folder: tuple[ObjectStore, str, str], tmp_path: Path
) -> None:
    store, digest, clean = in_folder
    results: list[str] = []

    def run() -> None:
        results.append(deliver(store, digest, tmp_path / "ssd", limit_bytes=40_000).digest)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [clean] * 3


def test_a_shard_that_is_another_object_is_named(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    digest = build_test_cache(store)
    key = next(info.key for info in store.list("caches/") if "/shards/00002" in info.key)
    store.put(key, b"LDSHARD1 nothing else")
    with pytest.raises(BadData, match=key.rsplit("/", 1)[-1]):
        deliver(store, digest, tmp_path / "ssd")


def test_a_damaged_shard_is_named_once_with_both_checksums_and_the_remedy_within_a_pods_last_words(
    tmp_path: Path,
) -> None:
    store = FolderStore(tmp_path / "store")
    digest = build_test_cache(store)
    key = next(info.key for info in store.list("caches/") if "/shards/00002" in info.key)
    data = bytearray(store.get(key, max_bytes=10**9))
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    store.put(key, bytes(data))
    with pytest.raises(BadData) as caught:
        deliver(store, digest, tmp_path / "ssd")
    told = str(caught.value)
    assert told.count(key) == 1 and told.count("…") == 2
    # the address in a cluster is longer: a bucket, a prefix and a namespace
    assert told.endswith(REBUILD) and len(told) - len(store.url) + len("s3://driving/lead/team-a") < MESSAGE_CHARS


@pytest.mark.parametrize("backend", ["packed", "diskcache", "none"])
@pytest.mark.parametrize("part", ["/shards/00002", "/buckets/"])
def test_a_shard_gone_from_the_store_is_named(tmp_path: Path, backend: str, part: str) -> None:
    store = FolderStore(tmp_path / "store")
    digest = build_test_cache(store)
    key = next(info.key for info in store.list("caches/") if part in info.key)
    store.delete(key)
    folder = None if backend == "none" else tmp_path / "ssd"
    with pytest.raises(BadData, match=rf"{key.rsplit('/', 1)[-1]} is missing; {re.escape(REBUILD)}"):
        deliver(store, digest, folder, backend=backend)


class AwayFromNowOn(FailingStore):
    """A store that does not answer for shards."""

    def download(self, key: str, path: Path, *, size: int, sha256: str) -> None:
        raise StoreUnavailable(f"{key}: connection refused")


@pytest.mark.parametrize("loader", ["ring", "process"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_long_outage_in_the_first_epoch_ends_with_the_class_of_the_store(
    in_folder: tuple[ObjectStore, str, str], tmp_path: Path, loader: str
) -> None:
    store, digest, _ = in_folder
    cache = CacheReader(store, digest, PackedBackend(AwayFromNowOn(store), tmp_path / "ssd"))
    batches = loader_named(loader)(
        BytesSamples(cache), stack, batch_size=BATCH, seed=1, threads=2, limits=LoaderLimits(store_outage_s=1.0)
    ).batches(0)
    with pytest.raises(StoreUnavailable, match=r"\.lds") as caught:
        next(batches)
    assert exit_code_of(caught.value) == ExitCode.STORE_UNAVAILABLE


def test_the_last_try_of_an_outage_ends_before_its_sample_counts_as_stuck() -> None:
    limits, store = LoaderLimits(), S3Limits()
    one_try_s = store.total_s + store.total_s + store.read_s  # of HEAD; without a piece of the shard; of a last piece
    assert limits.store_outage_s + one_try_s < limits.stuck_after_s
