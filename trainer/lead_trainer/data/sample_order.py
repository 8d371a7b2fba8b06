"""Which sample comes when: pure functions of (seed, epoch), the same for any number of ranks, threads and restarts.

Used by `loader` (the order of an epoch) and by the recipes' samples (the draw of each bucket). Positions are ranked by
a 64-bit hash, not by a library's generator, so the order does not change with a library's version.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lead_trainer.contract.samples import Indices
from lead_trainer.errors import BadConfig, BadData

LENGTH_WINDOW = 50  # batches among which samples of similar length are grouped
SHARD_WINDOW = 16  # shards whose samples are shuffled together: 2 GB
FIRST_WINDOW = 1  # in the first epoch, when most nodes are without the cache


def hash64(*values: int | npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Returns a well mixed 64-bit hash of integers and arrays of them (SplitMix64's finaliser over each in turn)."""
    state = np.zeros((), np.uint64)
    with np.errstate(over="ignore"):
        for value in values:
            part = value if isinstance(value, np.ndarray) else np.uint64(value % (1 << 64))
            state = _mix(state ^ (part + np.uint64(0x9E3779B97F4A7C15)))
    return np.asarray(state, np.uint64)


def unit_float(*values: int) -> float:
    """Returns a number in [0, 1) that depends on nothing but `values`."""
    return int(hash64(*values) >> np.uint64(11)) / float(1 << 53)


def shuffled(count: int, *seeds: int) -> Indices:
    """Returns a permutation of range(count) that depends on nothing but `count` and `seeds`."""
    return np.argsort(hash64(*seeds, np.arange(count, dtype=np.uint64)), kind="stable").astype(np.int64)


def draw_bucket(count: int, factor: float, seed: int, epoch: int, bucket: int) -> Indices:
    """Returns int(count * factor) positions of a bucket: without repetition up to factor 1, with repetition beyond."""
    wanted = int(count * factor)
    if wanted <= count:
        return np.sort(shuffled(count, seed, epoch, bucket, 1)[:wanted]) if wanted < count else np.arange(count)
    draws = hash64(seed, epoch, bucket, 2, np.arange(wanted, dtype=np.uint64))
    return (draws % np.uint64(count)).astype(np.int64)


def epoch_order(draw: Indices, seed: int, epoch: int, shards: Indices | None = None) -> Indices:
    """Returns the drawn samples of one epoch in training order.

    `shards`, one a drawn sample, is the shard it lies in. Shards then come in random order, SHARD_WINDOW of them
    shuffled together, so that a node without them trains on the first while the next are on their way. FIRST_WINDOW is
    smaller, as a node begins when it has it. Little is lost by that: which samples of a cache share a shard is random,
    so shard after shard is a random order of them; only epochs after it must mix the shards.
    """
    order = shuffled(len(draw), seed, epoch, 3)
    if shards is not None and len(draw):
        present, place = np.unique(shards, return_inverse=True)
        turn = np.argsort(np.argsort(hash64(seed, epoch, 5, present.astype(np.uint64)), kind="stable"), kind="stable")
        window = turn[place] // (SHARD_WINDOW if epoch else FIRST_WINDOW)
        order = order[np.argsort(window[order], kind="stable")]
    return draw[order]


def interleaved(orders: Sequence[Indices], seed: int, epoch: int) -> Indices:
    """Returns several orders as one in which each is spread evenly: any stretch holds about each one's share."""
    places = []
    for number, order in enumerate(orders):
        jitter = hash64(seed, epoch, 6, number, np.arange(len(order), dtype=np.uint64)) / 2.0**64
        places.append((np.arange(len(order)) + jitter) / len(order))
    return np.concatenate(orders)[np.argsort(np.concatenate(places), kind="stable")]


def in_turn(shards: Indices) -> Indices:
    """Returns each shard once, in the order of first use."""
    return shards[np.sort(np.unique(shards, return_index=True)[1])]


def grouped_by_length(order: Indices, lengths: Indices, batch_size: int, seed: int, epoch: int) -> Indices:
    """Returns the same samples in full batches of like length, the batches in random order; a tail is left out.

    Only within windows of LENGTH_WINDOW batches of the epoch's order, so epochs still differ in who meets whom, and
    samples come when their shard does.
    """
    full = order[: len(order) // batch_size * batch_size]
    grouped = [full[:0]]
    for at in range(0, len(full), LENGTH_WINDOW * batch_size):
        window = full[at : at + LENGTH_WINDOW * batch_size]
        batches = window[np.argsort(lengths[window], kind="stable")].reshape(-1, batch_size)
        grouped.append(batches[shuffled(len(batches), seed, epoch, 4, at)].reshape(-1))
    return np.concatenate(grouped)


def steps_in_epoch(samples: int, batch_size: int) -> int:
    """Returns the number of full batches; raises BadData where there is none."""
    if samples < batch_size:
        raise BadData(
            f"an epoch draws {samples} samples, fewer than one batch of {batch_size}; lower batch_size or add data"
        )
    return samples // batch_size


def rank_batch_size(batch_size: int, world: int) -> int:
    """Returns the share of one rank in a global batch; raises BadConfig unless it divides evenly."""
    if batch_size % world:
        raise BadConfig(f"batch_size: found {batch_size}, expected a multiple of the {world} processes")
    return batch_size // world


def _mix(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
