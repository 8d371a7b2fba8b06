"""What a cache build consists of, decided before the first record is made, and the same in every pod.

Samples, or whole routes where a scan keeps them together, are put in an order seeded by the digest and cut into parts
of about PART_BYTES; part k is one shard and one file of route metas, and belongs to worker k % parallelism. Everything
follows from (listing, digest): no pod talks to another. Called by `build`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lead_trainer.contract.raw_data import SampleKey, Scan
from lead_trainer.data.cache_tables import Placement
from lead_trainer.data.sample_order import shuffled

PART_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True)
class Part:
    """One unit of work: the samples of one shard in order, and the routes whose metas it carries."""

    number: int
    samples: npt.NDArray[np.int64]
    routes: tuple[tuple[str, tuple[int, ...]], ...]  # route, its frames in order


@dataclass(frozen=True)
class BuildPlan:
    """Every part, and where each sample ends up."""

    parts: tuple[Part, ...]
    placement: Placement

    def share(self, worker: int, parallelism: int) -> list[Part]:
        """Returns the parts of one worker."""
        return [part for part in self.parts if part.number % parallelism == worker]


def plan_build(scan: Scan, digest: str, part_bytes: int = PART_BYTES) -> BuildPlan:
    """Cuts the samples of a scan into parts; pure, and the same for any number of workers."""
    count = len(scan.samples)
    group = _route_numbers(scan.samples) if scan.routes_together else np.arange(count)
    groups = int(group.max()) + 1 if count else 0
    turn = np.argsort(shuffled(groups, int(digest[:16], 16)), kind="stable")[group]  # of each sample's group
    order = np.argsort(turn, kind="stable")
    sizes = scan.estimated_bytes[order]
    first = np.flatnonzero(np.diff(turn[order], prepend=-1))  # place of each group's first sample
    begins = np.repeat((np.cumsum(sizes) - sizes)[first], np.diff(first, append=count))
    shard_of = np.zeros(count, np.int64)
    shard_of[order] = begins // max(1, part_bytes)
    _, in_order = np.unique(shard_of[order], return_inverse=True)  # a huge sample may leave a number unused
    shard_of[order] = in_order
    parts = int(in_order.max()) + 1 if count else 0
    routes = _dealt_routes(scan.samples, parts)
    members = [order[in_order == number] for number in range(parts)]
    slot_of = np.zeros(count, np.int64)
    for samples in members:
        slot_of[samples] = np.arange(len(samples))
    built = tuple(Part(number, members[number], routes[number]) for number in range(parts))
    return BuildPlan(built, Placement(shard_of, slot_of, parts))


def _route_numbers(samples: Sequence[SampleKey]) -> npt.NDArray[np.int64]:
    """Returns the number of each sample's route; `samples` are sorted."""
    starts = [n == 0 or key.route != samples[n - 1].route for n, key in enumerate(samples)]
    return np.cumsum(np.array(starts, np.int64)) - 1


def _dealt_routes(samples: Sequence[SampleKey], parts: int) -> list[tuple[tuple[str, tuple[int, ...]], ...]]:
    """Deals the routes to the parts in turn; `samples` are sorted."""
    frames: dict[str, list[int]] = {}
    for key in samples:
        frames.setdefault(key.route, []).append(key.frame)
    routes = [(route, tuple(found)) for route, found in frames.items()]
    return [tuple(routes[number::parts]) for number in range(parts)]
