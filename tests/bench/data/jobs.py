"""What one measured process is told and what it answers; JSON between the driver and two environments."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import numpy as np

Batch = dict[str, Any]
Epoch = Callable[[int], Iterator[Batch]]  # number of the epoch → its batches
BOUNDS = ("decode only", "decode into batches")  # what no loader can surpass
OURS = ("packed", "diskcache", "no cache", *BOUNDS)
OTHERS = ("litdata", "mds", "webdataset", "files")
LEADS = ("lead persistent", "lead session", "lead session, u8")
SYSTEMS = (*OURS, *OTHERS, *LEADS)
GETS = ("packed", "litdata", "mds", "webdataset")  # those whose fetching alone is measured
GOT_AT_ONCE = 64  # numbers handed over together where samples are only fetched
FAR_LATENCY_S, FAR_BYTES_PER_S = 0.010, 100e6
FROM_STORE = ("packed", "diskcache", "no cache", "litdata", "mds", "webdataset")  # the others read a file system


@dataclass(frozen=True)
class Job:
    """One process: a system in one state, over some epochs."""

    system: str
    data: str  # folder of `write_formats`
    cache: str  # node-local folder of this process, empty or left by another
    count: int
    epochs: int
    batch: int
    threads: int  # or worker processes
    endpoint: str = ""  # of the S3 store; empty: everything is on this disk
    digests: bool = False
    touched: bool = False  # memory is handed over in rings of pages that were written before
    pinned: bool = False  # batches end in memory that is made once, as a GPU copies from
    get_only: bool = False  # a sample's bytes are fetched by one thread, neither decoded nor batched
    cores: tuple[int, ...] = ()

    def to_json(self) -> str:
        """Returns the words for the process."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "Job":
        """Reads `to_json`."""
        values = json.loads(text)
        return Job(**{**values, "cores": tuple(values["cores"])})


@dataclass(frozen=True)
class EpochFigures:
    """What one epoch took."""

    samples: int
    seconds: float
    first_batch_s: float  # from asking for the epoch
    gap_p50_s: float  # between batches
    gap_p99_s: float
    gap_max_s: float
    cpu_ms: float  # a sample, of all processes
    faults: float  # a sample: pages touched for the first time
    digest: str = ""


@dataclass(frozen=True)
class Figures:
    """What one process took, without imports."""

    epochs: list[EpochFigures] = field(default_factory=list)
    open_s: float = 0.0  # before the first epoch could be asked for

    @staticmethod
    def from_json(text: str) -> "Figures":
        """Reads what a process answered; raises RuntimeError where it was an error."""
        values = json.loads(text)
        if "error" in values:
            raise RuntimeError(values["error"])
        return Figures(**{**values, "epochs": [EpochFigures(**epoch) for epoch in values["epochs"]]})


def in_batches(numbers: Iterable[int]) -> Iterator[Batch]:
    """Yields the numbers of samples as batches of nothing else."""
    source = iter(numbers)
    while some := list(islice(source, GOT_AT_ONCE)):
        yield {"index": np.array(some)}
