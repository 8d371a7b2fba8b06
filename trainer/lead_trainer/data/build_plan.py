"""What a cache build consists of, decided before the first record is made, and the same in every pod.

Samples, or whole routes where a scan keeps them together, are put in an order seeded by the digest and cut into parts
of about PART_BYTES; part k is one shard and one file of route metas. Which parts there are follows from (listing,
digest), whatever the number of pods. Each builds those whose first samples follow each other, so that it opens few of
the files that many routes share. Called by `build`.
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
        by_sample = sorted(self.parts, key=lambda part: int(part.samples.min()))
        return [by_sample[at] for at in block_of(len(by_sample), worker, parallelism)]


def block_of(count: int, worker: int, parallelism: int) -> range:
    """Returns one worker's of `count` things in a row: as many as the others have, or one more or less."""
    return range(-(-count * worker // parallelism), -(-count * (worker + 1) // parallelism))


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
    routes = _routes_of_parts(scan, shard_of, parts)
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


def _routes_of_parts(
    scan: Scan, shard_of: npt.NDArray[np.int64], parts: int
) -> list[tuple[tuple[str, tuple[int, ...]], ...]]:
    """Returns the routes of each part: those that lie in it, or, where samples are mixed, dealt out in turn."""
    frames: dict[str, list[int]] = {}
    part_of: dict[str, int] = {}
    for number, key in enumerate(scan.samples):  # sorted
        frames.setdefault(key.route, []).append(key.frame)
        part_of.setdefault(key.route, int(shard_of[number]) if scan.routes_together else len(part_of) % parts)
    found: list[list[tuple[str, tuple[int, ...]]]] = [[] for _ in range(parts)]
    for route, numbers in frames.items():
        found[part_of[route]].append((route, tuple(numbers)))
    return [tuple(routes) for routes in found]
