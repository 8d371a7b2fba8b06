"""The other systems' loaders, as their documents advise, with the same decode function; in the bench's own environment.

Every one of them ends in torch's DataLoader with worker processes. With `touched`, workers stack samples into memory
that is shared and written once before they are forked, and hand over only its number. With `pinned`, the loop copies
every batch into memory that is made once, as the thread of `pin_memory` does; our ring is such memory already.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate, get_worker_info

from bench.data.jobs import LEADS, Batch, Epoch, Job, in_batches
from bench.data.lead_caches import LeadSamples
from bench.data.samples import Sample, decode

BUCKET = "bench"
USER, PASSWORD = "lead-test-root", "lead-test-root-password"  # of lead_testing.minio_server
MODULES = {"litdata": "litdata", "mds": "streaming", "webdataset": "webdataset"}  # imported before forking
PREFETCH = 2
SLOTS = 2 * PREFETCH + 2  # a worker: waiting, being read, being filled


class Files(Dataset[Sample]):
    """Two plain files a sample."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder, self._count = folder, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Sample:
        path = self._folder / f"{number:06d}"
        sample = decode(path.with_suffix(".jpg").read_bytes(), path.with_suffix(".lz4").read_bytes())
        return {**sample, "index": number}


class TouchedRing:
    """Collates into shared memory made before the fork; `batch` finds it again in the parent."""

    def __init__(self, example: Sample, rows: int, workers: int) -> None:
        self._workers, self._next = workers, 0
        self._slots = [
            {key: _row_memory(value, rows) for key, value in example.items()} for _ in range(SLOTS * workers)
        ]

    def __call__(self, samples: Sequence[Sample]) -> tuple[int, int]:
        """Fills this worker's next slot; returns its number and the rows filled."""
        worker = get_worker_info()
        number = (worker.id if worker else 0) * SLOTS + self._next % SLOTS
        self._next += 1
        for row, sample in enumerate(samples):
            for key, memory in self._slots[number].items():
                memory.numpy()[row] = sample[key]
        return number, len(samples)

    def batch(self, handed: tuple[int, int]) -> Batch:
        """Returns the tensors of a filled slot."""
        number, rows = int(handed[0]), int(handed[1])
        return {key: memory[:rows] for key, memory in self._slots[number].items()}


def open_epochs(job: Job) -> Epoch:
    """Returns the system's epochs."""
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    if job.get_only:
        source = _got(job)
        return lambda epoch: in_batches(source())
    ring = TouchedRing(_example(job), job.batch, job.threads) if job.touched else None
    loader = _loader(job, ring or default_collate)

    pinned: Batch = {}

    def epoch(number: int) -> Iterator[Batch]:
        for handed in loader:
            batch = ring.batch(handed) if ring else handed
            yield _copied(batch, pinned) if job.pinned else batch

    return epoch


def _copied(batch: Batch, memory: Batch) -> Batch:
    tensors = {key: value for key, value in batch.items() if isinstance(value, torch.Tensor)}  # WebDataset adds texts
    for key, value in tensors.items():
        if key not in memory:
            memory[key] = torch.empty_like(value)
        memory[key][: len(value)].copy_(value)
    return {key: memory[key][: len(value)] for key, value in tensors.items()}


def _loader(job: Job, collate: Any) -> Any:
    data = Path(job.data)
    options: dict[str, Any] = {"num_workers": job.threads, "persistent_workers": True, "prefetch_factor": PREFETCH}
    if job.system == "litdata":
        return _litdata(job, {**options, "batch_size": job.batch, "collate_fn": collate})
    if job.system == "mds":
        return DataLoader(_mds(job, _decoded), batch_size=job.batch, collate_fn=collate, **options)
    if job.system == "webdataset":
        return DataLoader(_webdataset(job, collate), batch_size=None, **options)
    samples: Any = Files(data / "files", job.count)
    if job.system in LEADS:
        session = Path(job.cache) / "diskcache" if job.system.startswith("lead session") else None
        samples = LeadSamples(data / "lead", session, job.count, compact=job.system.endswith("u8"))
    return DataLoader(samples, batch_size=job.batch, shuffle=True, collate_fn=collate, **options)


def _got(job: Job) -> Callable[[], Iterator[int]]:
    """Returns what yields the number of each sample after its bytes were read, shuffled as each system does."""
    data = Path(job.data)
    if job.system == "litdata":
        from litdata import StreamingDataset

        samples = StreamingDataset(str(data / "litdata"), shuffle=True)
        return lambda: (int(fields["index"]) for fields in samples)
    if job.system == "mds":
        samples = _mds(job, _undecoded)
        return lambda: (fields["index"] for fields in samples)
    if job.system == "webdataset":
        samples = _tars(job).shuffle(100)
        return lambda: (int(fields["__key__"]) for fields in samples)
    raise RuntimeError(f"{job.system} has no samples to fetch one by one")


def _litdata(job: Job, options: dict[str, Any]) -> Any:
    from litdata import StreamingDataLoader, StreamingDataset  # type: ignore[import-not-found]
    from litdata.streaming import downloader  # type: ignore[import-not-found]

    class LitSamples(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> Sample:
            return _decoded(super().__getitem__(index))

    if not job.endpoint:
        return StreamingDataLoader(LitSamples(str(Path(job.data) / "litdata"), shuffle=True), **options)
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # 0.2.76 has no option for a store without TLS
    access = {"endpoint_url": f"http://{job.endpoint}", "aws_access_key_id": USER, "aws_secret_access_key": PASSWORD}
    samples = LitSamples(
        f"s3://{BUCKET}/litdata", cache_dir=job.cache, shuffle=True, storage_options=access, max_cache_size="50GB"
    )
    return StreamingDataLoader(samples, **options)


def _mds(job: Job, sample_of: Callable[[dict[str, Any]], Sample]) -> Any:
    from streaming import StreamingDataset  # type: ignore[import-not-found]
    from streaming.base.util import clean_stale_shared_memory  # type: ignore[import-not-found]

    class MdsSamples(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, at: Any) -> Any:
            return sample_of(super().__getitem__(at))

    clean_stale_shared_memory()
    os.environ |= {"AWS_ACCESS_KEY_ID": USER, "AWS_SECRET_ACCESS_KEY": PASSWORD, "AWS_DEFAULT_REGION": "us-east-1"}
    if job.endpoint:
        os.environ["S3_ENDPOINT_URL"] = f"http://{job.endpoint}"
    remote = f"s3://{BUCKET}/mds" if job.endpoint else str(Path(job.data) / "mds")
    samples = MdsSamples(remote=remote, local=job.cache, batch_size=job.batch, shuffle=True)
    for stream in samples.streams:  # or the forked workers share its connection and get each other's shards
        stream._downloader.clean_up()
    return samples


def _webdataset(job: Job, collate: Any) -> Any:
    samples = _tars(job).shuffle(100).map(_of_tar)
    return samples.batched(job.batch, collation_fn=collate)


def _tars(job: Job) -> Any:
    import webdataset  # type: ignore[import-not-found]

    shards = sorted((Path(job.data) / "wds").glob("*.tar"))
    urls = [str(shard) for shard in shards]
    options: dict[str, Any] = {}
    if job.endpoint:
        urls = [f"pipe:curl -s -f http://{job.endpoint}/{BUCKET}/wds/{shard.name}" for shard in shards]
        options = {"cache_dir": job.cache}
    return webdataset.WebDataset(urls, shardshuffle=len(urls), **options)


def _of_tar(fields: dict[str, Any]) -> Sample:
    return {**decode(fields["jpg"], fields["lz4"]), "index": int(fields["__key__"])}


def _decoded(fields: dict[str, Any]) -> Sample:
    return {**decode(fields["image"], fields["planes"]), "index": int(fields["index"])}


def _undecoded(fields: dict[str, Any]) -> Sample:
    return {"index": int(fields["index"])}


def _example(job: Job) -> Sample:
    if job.system in LEADS:
        return LeadSamples(Path(job.data) / "lead", None, job.count, compact=job.system.endswith("u8"))[0]
    return Files(Path(job.data) / "files", job.count)[0]


def _row_memory(value: Any, rows: int) -> torch.Tensor:
    array = np.asarray(value)
    memory = torch.from_numpy(np.zeros((rows, *array.shape), array.dtype))
    return memory.share_memory_()  # type: ignore[no-untyped-call,no-any-return]
