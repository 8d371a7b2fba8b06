"""What a raw dataset tree holds, as types that preparations and builds share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class SourceFile:
    """One file of a raw dataset tree; `path` is relative to the tree's root, with forward slashes."""

    path: str
    size: int
    etag: str


class SourceTree(Protocol):
    """A raw dataset tree, in a bucket or in a folder."""

    def files(self) -> Sequence[SourceFile]:
        """Returns every file, sorted by path; the listing is taken once and kept."""

    def read(self, path: str) -> bytes:
        """Returns one file's bytes; raises BadData naming the file when it is missing or cannot be read whole."""

    def local_file(self, path: str) -> Path:
        """Returns where one file lies on this machine's disk, for libraries that read from a file; like `read` else.

        A file of a bucket is fetched once and kept as long as the tree.
        """


@dataclass(frozen=True)
class SampleKey:
    """One frame of one route; `route` is the route folder relative to the tree's root."""

    route: str
    frame: int


@dataclass(frozen=True)
class RouteVerdict:
    """Whether a route is used for training, and why not."""

    route: str
    kept: bool
    reason: str  # a code, `kept` for a kept one
    frames: int


@dataclass(frozen=True)
class Bucket:
    """Samples that are drawn together; `samples` are positions in Scan.samples."""

    name: str
    samples: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Collection:
    """Buckets and how many times each is drawn in an epoch (LEAD's mixture factors)."""

    name: str
    buckets: tuple[Bucket, ...]
    mixture: tuple[float, ...]  # a factor a bucket; 1.0 draws each sample once
    counters: Mapping[str, int] = field(default_factory=dict)  # kept beside the rows, for people


@dataclass(frozen=True)
class Scan:
    """What a raw tree holds: the verdicts, every sample of any collection, the collections."""

    verdicts: tuple[RouteVerdict, ...]
    samples: tuple[SampleKey, ...]  # sorted, unique
    collections: tuple[Collection, ...]
    estimated_bytes: npt.NDArray[np.int64]  # a sample, from the listing alone: decides how shards are cut
    routes_together: bool = False  # a route's samples lie in one shard, in order, for windows of several samples
