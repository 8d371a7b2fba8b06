"""The samples of a stage from one or several caches: those of one data set joined, data sets mixed batch by batch.

In a batch every data set has a fixed share: equal ones, or, under `schedule_carla_num_samples`, ones that move from
CARLA to real data over the epochs. As in LEAD, an epoch has the steps of one set alone, because LEAD counts them so and
the learning rate follows them; of S equal shares each set gives a part in S, another one each epoch. Without
`compat.one_set_mixed_epochs` an epoch is as long as all sets together, and a set that is short starts over.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from lead_trainer.contract.samples import Cache, Indices, Sample, Samples
from lead_trainer.data.node_shares import braided, dealt, node_seed
from lead_trainer.data.sample_order import epoch_order, hash64, interleaved, shuffled
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.lead.batch_shares import batch_shares
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.data_sources import CARLA, SOURCES, WAYMO, DataSource
from lead_trainer.recipes.lead.dataset import LeadSamples
from lead_trainer.recipes.lead.dataset_real import RealSamples
from lead_trainer.recipes.lead.preparation import SOURCE_KEY

Part = LeadSamples | RealSamples

COUNT_STREAM, SUBSAMPLE_STREAM, ROUND_STREAM, CACHE_STREAM = 11, 12, 13, 14


class MixedSamples(Samples):
    """Every sample of every cache; index runs over the caches one after the other."""

    def __init__(self, config: LeadConfig, parts: Mapping[DataSource, Sequence[Part]], *, mixed: bool = True) -> None:
        """`mixed`: batches hold every data set's share; otherwise the sets simply follow each other."""
        self._config = config
        self._mixed = mixed and len(parts) > 1
        self._parts = [part for source in parts for part in parts[source]]
        self._starts = np.concatenate([[0], np.cumsum([len(part) for part in self._parts])]).astype(np.int64)
        numbers = iter(range(len(self._parts)))
        self._groups = {source: [next(numbers) for _ in parts[source]] for source in parts}

    def __len__(self) -> int:
        """Number of samples of all caches."""
        return int(self._starts[-1])

    def epoch_draw(self, epoch: int) -> Indices:
        """Returns the drawn samples of every data set, as many as an epoch has.

        Raises BadConfig where mixed sets are of unequal size.
        """
        draws = {source: self.source_draw(source, epoch) for source in self._groups}
        sizes = {source.name: len(draw) for source, draw in draws.items()}
        if self._mixed and len(set(sizes.values())) > 1:
            found = ", ".join(f"{name} {size}" for name, size in sizes.items())
            keys = ", ".join(source.count_key for source in self._groups)
            raise BadConfig(
                f"{keys}: an epoch would draw {found} samples; mixed data sets need equal numbers: set them"
            )
        drawn = np.stack(list(draws.values()), axis=1).reshape(-1) if self._mixed else np.concatenate([*draws.values()])
        return drawn[: self._epoch_length(list(draws.values()))]

    def composed_order(self, epoch: int, batch_size: int, canonical_nodes: int = 1) -> Indices:
        """Returns the epoch's samples in training order; each slice of `batch_size` holds every data set's share.

        So does each of the sections that a slice has of `canonical_nodes` (`data.node_shares`). Raises BadConfig where
        sections cannot be so, or a data set is too small for so many nodes.
        """
        draws = [self.source_draw(source, epoch) for source in self._groups]
        if not self._mixed:
            draws = [np.concatenate(draws)]
        of_nodes = list(zip(*(self._dealt(draw, canonical_nodes) for draw in draws), strict=True))
        seeds = [self._config.seed]
        if canonical_nodes > 1:
            seeds = [node_seed(self._config.seed, node) for node in range(canonical_nodes)]
        if not self._mixed:
            orders = [self._ordered(draw, seed, epoch) for (draw,), seed in zip(of_nodes, seeds, strict=True)]
            return braided(orders, batch_size)
        shares = batch_shares(self._config, len(draws), batch_size, epoch, canonical_nodes)
        steps = self._epoch_length(draws) // batch_size
        columns = [
            self._in_rounds(draw, steps * share, epoch, seed).reshape(steps, share)
            for parts, seed in zip(of_nodes, seeds, strict=True)
            for draw, share in zip(parts, shares, strict=True)
        ]
        return np.concatenate(columns, axis=1).reshape(-1)

    def _dealt(self, draw: Indices, canonical_nodes: int) -> list[Indices]:
        """Returns each canonical node's samples of a draw."""
        if canonical_nodes == 1:
            return [draw]
        if len(draw) < canonical_nodes:
            raise BadConfig(
                f"canonical_nodes: found {canonical_nodes}, expected at most {len(draw)}, the samples that an epoch "
                "draws of a data set; lower it, or add data"
            )
        return [draw[places] for places in dealt(self.shards_of(draw), canonical_nodes)]

    def _in_rounds(self, draw: Indices, count: int, epoch: int, seed: int) -> Indices:
        """Returns `count` samples: the draw in training order, and again in another one as often as needed."""
        if not count:
            return draw[:0]
        seeds = [int(hash64(seed, ROUND_STREAM, number)) for number in range(-(-count // len(draw)))]
        return np.concatenate([self._ordered(draw, seed, epoch) for seed in seeds])[:count]

    def _ordered(self, draw: Indices, seed: int, epoch: int) -> Indices:
        """Returns a draw in training order: each cache's samples by their shards, the caches spread evenly over it."""
        parts = self._parts_of(draw)
        orders = []
        for number in np.unique(parts).tolist():
            mine = draw[parts == number]
            shards = self._parts[number].shards_of(mine - self._starts[number])
            orders.append(epoch_order(mine, int(hash64(seed, CACHE_STREAM, number)), epoch, shards))
        return interleaved(orders, seed, epoch)

    def _epoch_length(self, draws: Sequence[Indices]) -> int:
        alone = self._mixed and self._config.compat.one_set_mixed_epochs
        return len(draws[0]) if alone else sum(map(len, draws))

    def source_draw(self, source: DataSource, epoch: int) -> Indices:
        """Returns what an epoch draws of one data set: its caches' draws, repeated or cut to the config's number."""
        draw = np.concatenate([self._parts[n].epoch_draw(epoch) + self._starts[n] for n in self._groups[source]])
        if not len(draw):
            raise BadData(
                f"an epoch draws no {source.name} sample: every bucket of its collection is empty or has a factor too "
                "small for it; add routes, or build the cache with other collections"
            )
        wanted, seed = getattr(self._config, source.count_key), self._config.seed
        if wanted > 0:
            return np.resize(draw[shuffled(len(draw), seed, epoch, COUNT_STREAM)], wanted)
        if source is WAYMO and self._config.waymo_e2e_subsample_factor > 1:
            order = shuffled(len(draw), seed, epoch, SUBSAMPLE_STREAM)
            return np.sort(draw[order[:: self._config.waymo_e2e_subsample_factor]])
        return draw

    def order_epoch(self, epoch: int) -> int:
        """Returns the epoch whose order is used: LEAD's workers replay the first one for ever."""
        return 0 if self._config.compat.fixed_epoch_order else epoch

    def name(self, index: int) -> str:
        """Returns route and frame of a sample, for messages."""
        part, place = self._place(index)
        return part.name(place)

    def load(self, index: int, epoch: int) -> Sample:
        """Returns one sample of the cache it is in."""
        part, place = self._place(index)
        return part.load(place, epoch)

    def shards_of(self, indices: Indices) -> Indices:
        """Returns the shard of each sample, numbered through all caches."""
        parts = self._parts_of(indices)
        shards = np.zeros(len(indices), np.int64)
        for number, part in enumerate(self._parts):
            of = parts == number
            shards[of] = part.shards_of(indices[of] - self._starts[number]) * len(self._parts) + number
        return shards

    def fetch_shard(self, shard: int) -> bool:
        """Fetches a shard of one of the caches to this node."""
        number, part = divmod(shard, len(self._parts))
        return self._parts[part].fetch_shard(number)

    def _parts_of(self, indices: Indices) -> Indices:
        return np.searchsorted(self._starts, indices, side="right") - 1

    def _place(self, index: int) -> tuple[Part, int]:
        number = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self._parts[number], index - int(self._starts[number])


def open_samples(config: LeadConfig, caches: Mapping[str, Cache], *, mixed: bool = True) -> MixedSamples:
    """Returns the samples of caches by name.

    Raises BadConfig naming a cache of a data set that the config does not use, or a used data set without a cache.
    """
    parts: dict[DataSource, list[Part]] = {source: [] for source in config.sources}
    by_name = {source.name: source for source in SOURCES}
    for name, cache in caches.items():
        source = by_name.get(str(cache.config.get(SOURCE_KEY)))
        if source is None:
            raise BadConfig(
                f"dataset {name} holds {cache.config.get(SOURCE_KEY)!r}, which the recipe lead does not read"
            )
        if source not in parts:
            raise BadConfig(f"dataset {name} holds {source.name} data; set {source.use_key}: true, or leave it out")
        parts[source].append(LeadSamples(config, cache) if source is CARLA else RealSamples(config, cache, source))
    for source, found in parts.items():
        if not found:
            raise BadConfig(
                f"{source.use_key} is true, but no dataset of the run holds {source.name} data; add its cache"
            )
    return MixedSamples(config, parts, mixed=mixed)
