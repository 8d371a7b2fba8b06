"""Which samples of an epoch which node reads, so that it fetches its own shards and not those of all nodes.

The shards are dealt to `canonical_nodes`, a number of the config and not of the machines. Each orders its samples by
itself, and every global batch has a section of equal size from each, in their order. So the batches are the same for
any number of ranks and nodes. Where the real nodes divide the canonical ones, each reads the sections of some
neighbours among them and no others. One canonical node is the order of `sample_order` alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lead_trainer.contract.samples import Indices
from lead_trainer.data.sample_order import epoch_order, grouped_by_length, hash64, steps_in_epoch
from lead_trainer.data.small_ints import SmallInts, small
from lead_trainer.errors import BadConfig

DEAL_STREAM, NODE_STREAM = 7, 8


def refuse_uneven_sections(batch_size: int, canonical_nodes: int) -> None:
    """Raises BadConfig unless every canonical node has as many samples of a global batch."""
    if canonical_nodes < 1 or batch_size % canonical_nodes:
        raise BadConfig(
            f"canonical_nodes: found {canonical_nodes}, expected a divisor of batch_size, which is {batch_size}: each "
            "has an equal section of every batch; set it to the run's number of nodes, and batch_size to a multiple"
        )


def dealt(shards: Indices, nodes: int) -> list[Indices]:
    """Returns the positions of each node's samples in `shards` (n,), which has the shard of each sample of a draw.

    Shards lie on a line in an order that never changes, so a node's disk has those of its next epoch already; the line
    is cut where each node has n/nodes samples, rounded up or down. So at most nodes - 1 shards belong to two of them.
    """
    line = np.argsort(hash64(DEAL_STREAM, shards.astype(np.uint64)), kind="stable")
    return np.split(line, [len(line) * node // nodes for node in range(1, nodes)])


def node_seed(seed: int, node: int) -> int:
    """Returns the seed of a canonical node's order."""
    return int(hash64(seed, NODE_STREAM, node))


def braided(orders: Sequence[Indices], batch_size: int) -> Indices:
    """Returns the orders of all canonical nodes as one of global batches; what is left of each comes after them.

    Their lengths differ by one at most, so each has its section of every full batch.
    """
    section = batch_size // len(orders)
    full = sum(map(len, orders)) // batch_size * section
    columns = [order[:full].reshape(-1, section) for order in orders]
    return np.concatenate([np.concatenate(columns, axis=1).reshape(-1), *(order[full:] for order in orders)])


def nodes_order(
    draw: Indices, seed: int, epoch: int, shards: Indices | None, batch_size: int, canonical_nodes: int
) -> Indices:
    """Returns the drawn samples of one epoch in training order; samples that lie in no shards have one for all."""
    if canonical_nodes == 1 or shards is None:
        return epoch_order(draw, seed, epoch, shards)
    orders = [
        epoch_order(draw[places], node_seed(seed, node), epoch, shards[places])
        for node, places in enumerate(dealt(shards, canonical_nodes))
    ]
    return braided(orders, batch_size)


def grouped_in_sections(
    order: Indices, lengths: Indices, batch_size: int, canonical_nodes: int, seed: int, epoch: int
) -> Indices:
    """Returns the samples in full batches of like length: each node's sections by themselves, all nodes alike."""
    section = batch_size // canonical_nodes
    full = order[: len(order) // batch_size * batch_size].reshape(-1, canonical_nodes, section)
    orders = [full[:, node].reshape(-1) for node in range(canonical_nodes)]
    return braided([grouped_by_length(each, lengths, section, seed, epoch) for each in orders], batch_size)


@dataclass(frozen=True)
class RankShare:
    """The part of each global batch that one rank reads."""

    batch_size: int  # global; a multiple of `world` and of `canonical_nodes`
    rank: int
    world: int
    canonical_nodes: int = 1

    @property
    def groups(self) -> int:
        """In how many groups of neighbours the ranks share the sections: those of a node are in the same, or more."""
        return math.gcd(self.canonical_nodes, self.world)

    def rows(self, order: Indices, first_step: int = 0) -> SmallInts:
        """Returns the rank's samples of each full batch from a step on, (steps, batch_size / world); a small copy.

        The ranks of a group read every n-th sample of its sections, as batches that are mixed of data sets have
        their shares side by side. Raises BadData where an order has no full batch.
        """
        of_group = self.group_rows(order, first_step)
        ranks = self.world // self.groups
        return small(of_group[:, self.rank % ranks :: ranks])

    def group_rows(self, order: Indices, first_step: int = 0) -> Indices:
        """Returns the samples of each batch that this rank's group reads: what its node needs of the shards."""
        steps = steps_in_epoch(len(order), self.batch_size)
        size = self.batch_size // self.groups
        first = self.rank * self.groups // self.world * size
        return order[first_step * self.batch_size : steps * self.batch_size].reshape(-1, self.batch_size)[
            :, first : first + size
        ]


def validation_share(draw: Indices, shards: Indices | None, rank: int, world: int, canonical_nodes: int) -> Indices:
    """Returns the samples of a split that a rank evaluates: with several canonical nodes, those of its own shards."""
    if canonical_nodes == 1 or shards is None:
        return draw[rank::world]
    return draw[dealt(shards, world)[rank]]


def shares_advice(nodes: int, world: int, canonical_nodes: int) -> str:
    """Returns advice for a run whose nodes fetch more than their share, empty where none does."""
    if math.gcd(canonical_nodes, world) % nodes == 0:
        return ""
    if canonical_nodes == 1:
        return (
            f"each of the {nodes} nodes fetches every shard; canonical_nodes: {nodes}, set before a run begins, lets "
            "each fetch its own"
        )
    return (
        f"canonical_nodes: {canonical_nodes} is no multiple of the {nodes} nodes, so neighbours fetch the same shards"
    )
