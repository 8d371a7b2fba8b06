"""One loader over one cache in a store, spoiled in every way; what must come out is the clean run's digest.

Called with small counts by tests/unit/data/test_faults_of_the_data_path.py and with full counts by
tests/campaign/data_goals.py.
"""

import hashlib
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from lead_protocol.job import BuildJob, FolderSource, OwnerIdentity
from lead_protocol.object_keys import LOCAL_NAMESPACE
from lead_protocol.store.object_store import ObjectStore
from lead_protocol.store.partial_file import PartialFile
from lead_testing.built_caches import build_and_publish
from lead_testing.bytes_recipe import MemoryTree, bytes_recipe
from lead_testing.store_proxy import Fault, StoreProxy
from lead_trainer.contract.samples import Batch, Sample
from lead_trainer.data.build import build_share
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.in_shards import RowsInShards
from lead_trainer.data.process_loader import loader_named
from lead_trainer.data.session_cache import CacheStats, open_session_cache

SAMPLES, SAMPLE_BYTES, PART_BYTES, BATCH = 96, 2000, 16_000, 8
READ_FAULTS: tuple[Fault, ...] = (
    "drop-before", "drop-answer", "503", "503-retry-after", "429", "cut-body", "short-body", "wrong-length",
    "flip-byte", "slow",
)  # fmt: skip
DAMAGES = ("flip", "cut", "zero", "version", "swap")


def build_test_cache(store: ObjectStore, namespace: str = LOCAL_NAMESPACE, *, publish: bool = True) -> str:
    """Builds a cache of several shards and returns its digest; it may be left where builds stage it."""
    noise = random.Random(5)
    tree = MemoryTree({f"r{n % 4}/{n // 4}": noise.randbytes(SAMPLE_BYTES) for n in range(SAMPLES)})
    job = BuildJob(
        owner=OwnerIdentity(namespace=namespace, name="cache", uid="uid"), generation=1, attempt=1, index=0,
        parallelism=1, recipe="bytes", source=FolderSource(path="tree"), collections=["all"],
    )  # fmt: skip
    recipe = bytes_recipe()
    build = build_and_publish if publish else build_share
    return build(job, store, tree, recipe, lambda record: None, part_bytes=PART_BYTES).digest


class BytesSamples(RowsInShards):
    """The cache's samples as arrays of bytes."""

    def __init__(self, cache: CacheReader) -> None:
        self._cache, self._rows = cache, cache.rows("all")

    def __len__(self) -> int:
        return len(self._rows.sample)

    def epoch_draw(self, epoch: int) -> npt.NDArray[np.int64]:
        return np.arange(len(self))

    def load(self, index: int, epoch: int) -> Sample:
        data = np.frombuffer(self._cache.fields(int(self._rows.sample[index]))["data"], np.uint8)
        return {"index": index, "data": data ^ np.uint8(epoch)}


def stack(samples: Any) -> Batch:
    """Stacks samples."""
    return {key: torch.from_numpy(np.stack([sample[key] for sample in samples])) for key in samples[0]}


@dataclass(frozen=True)
class Delivered:
    """What a run of one epoch delivered."""

    digest: str
    stats: CacheStats


def deliver(store: ObjectStore, digest: str, folder: Path | None, *, backend: str = "packed", threads: int = 3,
            limit_bytes: int = 0, loader: str = "ring") -> Delivered:  # fmt: skip
    """Loads one epoch and returns the digest of every batch in order."""
    cache = CacheReader(store, digest, open_session_cache(backend, store, folder, limit_bytes))
    found = hashlib.sha256()
    made = loader_named(loader)(BytesSamples(cache), stack, batch_size=BATCH, seed=1, threads=threads)
    for batch in made.batches(0):
        found.update(batch["index"].numpy().tobytes() + batch["data"].numpy().tobytes())
    cache.close()
    return Delivered(found.hexdigest(), cache.stats())


def damage_shards(folder: Path, kind: str, noise: random.Random) -> int:
    """Spoils the shards of a session cache in one way; returns how many were spoiled."""
    shards = sorted(path for path in (folder / "shards").iterdir() if len(path.name) == 64)
    if kind == "swap":
        first, second = noise.sample(shards, 2)
        one, other = first.read_bytes(), second.read_bytes()
        first.write_bytes(other)
        second.write_bytes(one)
        return 2
    path = noise.choice(shards)
    data = bytearray(path.read_bytes())
    place = data.find(b"LDR1", noise.randrange(len(data) // 2))
    if kind == "flip":
        data[noise.randrange(len(data))] ^= 1 << noise.randrange(8)
    elif kind == "cut":
        del data[noise.randrange(len(data)) :]
    elif kind == "zero":
        start = noise.randrange(len(data))
        data[start : start + 4096] = bytes(len(data[start : start + 4096]))
    else:
        data[place + 4] ^= 2
    path.write_bytes(bytes(data))
    return 1


def spoil_reads(proxy: StoreProxy, fault: Fault, noise: random.Random, *, every: int, part: str = "") -> None:
    """Spoils about one read in `every` whose path holds `part`, the same object at most twice: three tries succeed."""
    met: Counter[str] = Counter()

    def matches(method: str, path: str) -> bool:
        spoiled = method == "GET" and part in path and noise.randrange(every) == 0 and met[path] < 2
        met[path] += spoiled
        return spoiled

    proxy.plan_where(fault, matches)


def kill_while_filling(store: Callable[[], ObjectStore], digest: str, folder: Path, after_bytes: int) -> None:
    """Fills a session cache in a child that is killed by SIGKILL once it has written about `after_bytes`."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    written, plain = 0, PartialFile.write

    def counted(self: PartialFile, data: bytes) -> None:
        nonlocal written
        plain(self, data[: max(0, after_bytes - written)])
        written += len(data)
        if written >= after_bytes:
            self.handle.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    PartialFile.write = counted  # type: ignore[method-assign]
    try:
        deliver(store(), digest, folder)
    finally:
        os._exit(0)  # it had written everything before
