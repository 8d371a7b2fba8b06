"""Our data path in the benchmark: a recipe of two fields, built, cached and loaded by the trainer's own code."""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import torch
from minio import Minio

from bench.data.jobs import BOUNDS, Batch, Epoch, Job, in_batches
from bench.data.samples import HEIGHT, PLANES, WIDTH, decode_planes
from lead_protocol.job import BuildJob, FolderSource, OwnerIdentity
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import ObjectStore
from lead_protocol.store.s3 import S3Store
from lead_protocol.store.s3_target import S3Target
from lead_testing.built_caches import build_and_publish
from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER
from lead_trainer.contract.preparation import Preparation
from lead_trainer.contract.raw_data import Bucket, Collection, RouteVerdict, SampleKey, Scan
from lead_trainer.contract.samples import Sample
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.in_shards import RowsInShards
from lead_trainer.data.jpeg_picture import stored_picture
from lead_trainer.data.loader import BATCHES_AHEAD, Loader
from lead_trainer.data.sample_order import epoch_order
from lead_trainer.data.session_cache import CacheStats, SessionCache, open_session_cache
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.recipes.lead.dataset_collate import collate

BUCKET = "bench"
MODULES: dict[str, str] = {}  # imported before forking, besides those above
ROUTE, COLLECTION = "files", "all"
DIGEST_FILE = "digest.json"


@dataclass
class PlainFiles(Preparation):
    """Takes the plain files as they are."""

    version: str = "bench/1"
    default_collections: tuple[str, ...] = (COLLECTION,)

    def config_keys(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Reads nothing of the config."""
        return {}

    def scan(self, tree: Any, config: Mapping[str, Any], collections: Sequence[str]) -> Scan:
        """Returns every frame in one bucket."""
        sizes: dict[int, int] = {}
        for file in tree.files():
            frame = int(Path(file.path).stem)
            sizes[frame] = sizes.get(frame, 0) + file.size
        bucket = Bucket(COLLECTION, np.arange(len(sizes)))
        return Scan(
            verdicts=(RouteVerdict(ROUTE, True, "kept", len(sizes)),),
            samples=tuple(SampleKey(ROUTE, frame) for frame in sorted(sizes)),
            collections=(Collection(COLLECTION, (bucket,), (1.0,)),),
            estimated_bytes=np.array([sizes[frame] for frame in sorted(sizes)], np.int64),
        )

    def record(self, tree: Any, config: Mapping[str, Any], sample: SampleKey) -> Mapping[str, bytes]:
        """Returns a sample's fields."""
        return {
            "image": tree.read(f"{sample.frame:06d}.jpg"),
            "planes": tree.read(f"{sample.frame:06d}.lz4"),
        }

    def route_metas(self, tree: Any, config: Mapping[str, Any], route: str, frames: Sequence[int]) -> pa.Table:
        """Returns metas that say nothing."""
        return pa.table({"frame": pa.array(frames, pa.int32())})


@dataclass
class Recipe:
    """What a build asks of a recipe."""

    name: str = "bench"
    required_preparation: Preparation = field(default_factory=PlainFiles)


class Samples(RowsInShards):
    """The samples of the cache; index is the frame."""

    def __init__(self, reader: CacheReader) -> None:
        cv2.setNumThreads(1)
        self._cache: CacheReader = reader
        self._rows = reader.rows(COLLECTION)

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._rows.sample)

    def epoch_draw(self, epoch: int) -> np.ndarray:
        """Returns all samples."""
        return np.arange(len(self), dtype=np.int64)

    def got(self, index: int) -> int:
        """Fetches a sample's checked bytes; returns its number."""
        self._cache.fields(int(self._rows.sample[index]))
        return int(self._rows.frame[index])

    def stats(self) -> CacheStats:
        """Returns the session cache's counters."""
        return self._cache.stats()

    def load(self, index: int, epoch: int) -> Sample:
        """Returns one decoded sample."""
        fields = self._cache.fields(int(self._rows.sample[index]))
        picture = stored_picture(fields["image"], "BGR")  # decoded into its batch, by the decoder of every system
        return {"picture": picture, **decode_planes(fields["planes"]), "index": int(self._rows.frame[index])}


def build_cache(data: Path, part_bytes: int) -> None:
    """Builds our cache from the plain files."""
    job = BuildJob(
        owner=OwnerIdentity(namespace="local", name="bench", uid="bench"), generation=1, attempt=1, index=0,
        parallelism=1, recipe="bench", source=FolderSource(path=str(data / "files")), collections=[COLLECTION],
    )  # fmt: skip
    made = build_and_publish(job, FolderStore(data / "ours"), FolderTree(data / "files"), Recipe(),  # type: ignore[arg-type]
                       lambda _: None, part_bytes=part_bytes, processes=1)  # fmt: skip
    (data / DIGEST_FILE).write_text(json.dumps(made.digest))


def store_of(job: Job) -> ObjectStore:
    """Returns where the cache lies: the folder, or the same in MinIO."""
    if not job.endpoint:
        return FolderStore(Path(job.data) / "ours")
    return S3Store(target_of(job))


def target_of(job: Job) -> S3Target:
    """Returns the cache's place in MinIO."""
    return S3Target(endpoint=job.endpoint, bucket=BUCKET, prefix="ours", access_key=ROOT_USER,
                    secret_key=ROOT_PASSWORD, secure=False)  # fmt: skip


def upload(client: Minio, data: Path, folder: str) -> None:
    """Puts one system's format into the bucket."""
    for path in sorted((data / folder).rglob("*")):
        if path.is_file():
            client.fput_object(BUCKET, path.relative_to(data).as_posix(), str(path))


def open_cache(job: Job, store: ObjectStore, session: SessionCache) -> CacheReader:
    """Returns a reader of the benchmark's cache."""
    return CacheReader(store, json.loads((Path(job.data) / DIGEST_FILE).read_text()), session)


def open_epochs(job: Job) -> Epoch:
    """Returns the batches of the ring loader, or of nothing but decoding."""
    torch.set_num_threads(1)
    store = store_of(job)
    backend = "diskcache" if job.system == "diskcache" else "packed"
    session = open_session_cache(backend, store, None if job.system == "no cache" else Path(job.cache), 0)
    samples = Samples(open_cache(job, store, session))
    if job.get_only:
        return lambda epoch: in_batches(samples.got(int(i)) for i in epoch_order(samples.epoch_draw(epoch), 0, epoch))
    if job.system in BOUNDS:
        # One a thread, for all epochs: their pages are touched once.
        places: SimpleQueue[OnePicture | BatchRows] = SimpleQueue()
        for _ in range(job.threads):
            places.put(
                OnePicture() if job.system == BOUNDS[0] else BatchRows((BATCHES_AHEAD + 2) * job.batch // job.threads)
            )
        return lambda epoch: _decoded(samples, job, places)
    loader = Loader(samples, collate, batch_size=job.batch, seed=0, threads=job.threads)
    return loader.batches


class OnePicture:
    """Decodes every picture to the same place, which stays in the processor's cache, and leaves the planes."""

    def __init__(self) -> None:
        self._pixels = np.empty((HEIGHT, WIDTH, 3), np.uint8)

    def put(self, sample: Sample) -> None:
        """Decodes a sample."""
        sample["picture"].write_into(self._pixels)


class BatchRows:
    """A thread's share of memory as large as a loader's batches; every sample goes into the next row."""

    def __init__(self, rows: int) -> None:
        shapes = {"picture": (HEIGHT, WIDTH, 3), **PLANES}
        self._arrays = {name: np.empty((rows, *shape), np.uint8) for name, shape in shapes.items()}
        self._rows = cycle(range(rows))

    def put(self, sample: Sample) -> None:
        """Decodes a sample into its row."""
        row = next(self._rows)
        sample["picture"].write_into(self._arrays["picture"][row])
        for name in PLANES:
            self._arrays[name][row] = sample[name]


def _decoded(samples: Samples, job: Job, places: "SimpleQueue[OnePicture | BatchRows]") -> Iterator[Batch]:
    """Decodes every sample and hands over nothing but its index: what no loader can surpass."""
    numbers = range(job.count)
    with ThreadPoolExecutor(job.threads) as pool:
        chunks = [numbers[start :: 4 * job.threads] for start in range(4 * job.threads)]
        for indices in pool.map(lambda chunk: _decoded_chunk(samples, chunk, places), chunks):
            yield {"index": np.array(indices)}


def _decoded_chunk(samples: Samples, chunk: Sequence[int], places: "SimpleQueue[OnePicture | BatchRows]") -> list[int]:
    place, indices = places.get(), []
    try:
        for number in chunk:
            sample = samples.load(number, 0)
            place.put(sample)
            indices.append(sample["index"])
    finally:
        places.put(place)
    return indices
