"""One trial of each fault of the data path; `data_goals` repeats them. True: the epoch was the clean one to the byte.

What tests/unit/data/test_faults_of_the_data_path.py shows with a few: damaged cache files, spoiled answers of a MinIO
behind a proxy, outages, refusals, kills while the cache fills, and volumes that are full, read-only or removed.
"""

import random
import secrets
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lead_protocol.store.object_store import ObjectStore, StoreDenied, StoreFull
from lead_protocol.store.s3 import S3Store
from lead_protocol.store.s3_target import MIB, S3Limits
from lead_testing.data_faults import (
    build_test_cache,
    damage_shards,
    deliver,
    kill_while_filling,
    spoil_reads,
)
from lead_testing.minio_server import MinioServer, minio_program
from lead_testing.store_proxy import StoreProxy

LIMITS = S3Limits(read_s=2, total_s=60, part_bytes=5 * MIB, first_pause_s=0.02, longest_pause_s=0.5,
                  longest_retry_after_s=0.1)  # fmt: skip
OUTAGE_S, RESTART_S = 300.0, 0.5
LINK_BYTES_PER_S = 1e6
VOLUME_BYTES = 100_000  # half of what an epoch reads


@dataclass(frozen=True)
class Bench:
    """A cache in a store behind a proxy, and what a clean epoch of it is."""

    server: MinioServer
    proxy: StoreProxy
    bucket: str
    store: Callable[[], ObjectStore]
    digest: str
    clean: str


@contextmanager
def bench(folder: Path) -> Iterator[Bench]:
    """Starts MinIO and the proxy, builds the cache."""
    bucket = f"faults-{secrets.token_hex(4)}"
    with MinioServer(minio_program(), folder / "minio") as server, StoreProxy(server.endpoint) as proxy:
        server.admin().make_bucket(bucket)

        def store() -> S3Store:
            return S3Store(server.target(bucket, endpoint=proxy.endpoint), LIMITS)

        digest = build_test_cache(store())
        yield Bench(server, proxy, bucket, store, digest, deliver(store(), digest, None).digest)


def damage(here: Bench, folder: Path, kind: str, seed: int) -> bool:
    """Spoils one cached shard; true when that was found and the epoch is right."""
    deliver(here.store(), here.digest, folder)
    damage_shards(folder, kind, random.Random(seed))
    found = deliver(here.store(), here.digest, folder)
    return found.digest == here.clean and found.stats.corrupt > 0


def spoiled_answers(here: Bench, folder: Path, fault: Any, seed: int) -> bool:
    """Spoils a tenth of the reads."""
    spoil_reads(here.proxy, fault, random.Random(seed), every=10)
    try:
        return deliver(here.store(), here.digest, folder / secrets.token_hex(4)).digest == here.clean
    finally:
        here.proxy.clear()


def killed_fill(here: Bench, folder: Path, seed: int) -> bool:
    """Kills a fill after a random number of bytes; true when only whole shards were left."""
    where = folder / f"killed{seed}"
    kill_while_filling(here.store, here.digest, where, random.Random(seed).randrange(1, 250_000))
    found = deliver(here.store(), here.digest, where)
    return found.digest == here.clean and found.stats.corrupt == 0


def outage(here: Bench, folder: Path, seconds: float) -> bool:
    """Kills the server as an epoch begins to fill, and starts it again `seconds` later."""
    away = threading.Timer(0.05, here.server.stop)
    back = threading.Timer(0.05 + seconds, here.server.start)
    away.start()
    back.start()
    try:
        return deliver(here.store(), here.digest, folder / secrets.token_hex(4)).digest == here.clean
    finally:
        away.join()
        back.join()


def refused(here: Bench, folder: Path) -> bool:
    """Answers 403 in mid-epoch: the end is StoreDenied, and the next try goes on."""
    here.proxy.plan("403-expired", method="GET", part="/shards/", times=10**9)
    where = folder / secrets.token_hex(4)
    try:
        deliver(here.store(), here.digest, where)
    except StoreDenied:
        here.proxy.clear()
        return deliver(here.store(), here.digest, where).digest == here.clean
    finally:
        here.proxy.clear()
    return False


def store_full(here: Bench, seed: int) -> bool:
    """Answers 507 to a write of a build: it ends as StoreFull, shows no torn cache, and is built by the next try."""
    here.server.admin().make_bucket(bucket := f"full-{secrets.token_hex(4)}")
    store = S3Store(here.server.target(bucket, endpoint=here.proxy.endpoint), LIMITS)
    writes = random.Random(seed).randrange(1, 20)
    met: list[str] = []

    def full(method: str, path: str) -> bool:
        met.extend([path] if method in ("PUT", "POST") else [])
        return method in ("PUT", "POST") and len(met) > writes

    here.proxy.plan_where("507", full)
    try:
        build_test_cache(store)
    except StoreFull:
        here.proxy.clear()
        return build_test_cache(store) == here.digest and deliver(store, here.digest, None).digest == here.clean
    finally:
        here.proxy.clear()
    return False


def slow_link(here: Bench, folder: Path) -> bool:
    """Reads an epoch over a link of one megabyte a second."""
    with StoreProxy(here.server.endpoint, bytes_per_s=LINK_BYTES_PER_S) as link:
        store = S3Store(here.server.target(here.bucket, endpoint=link.endpoint), LIMITS)
        return deliver(store, here.digest, folder / secrets.token_hex(4)).digest == here.clean


def small_volume(here: Bench, folder: Path, options: str) -> bool:
    """Keeps the cache on a volume that is too small, or that nobody may write to; needs root."""
    where = folder / secrets.token_hex(4)
    where.mkdir()
    kind = ["mount", "-t", "tmpfs", "-o", f"size={VOLUME_BYTES},{options}", "tmpfs", str(where)]
    subprocess.run(kind, check=True, capture_output=True, text=True)
    try:
        return all(deliver(here.store(), here.digest, where).digest == here.clean for _ in range(2))
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True)


def removed(here: Bench, folder: Path) -> bool:
    """Deletes the cache's folder again and again while epochs fill and read it."""
    where, done = folder / secrets.token_hex(4), threading.Event()

    def remove() -> None:
        while not done.wait(0.01):
            shutil.rmtree(where, ignore_errors=True)

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        return all(deliver(here.store(), here.digest, where).digest == here.clean for _ in range(3))
    finally:
        done.set()
        remover.join()
