"""Each node brings its share of the shards, and the batches are the same for any number of nodes and restarts."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead_protocol.store.folder import FolderStore
from lead_testing.data_faults import BATCH, SAMPLES, BytesSamples, build_test_cache, stack
from lead_trainer.contract.installed import load_recipe
from lead_trainer.contract.samples import Sample, Samples
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.loader import Loader
from lead_trainer.data.node_shares import RankShare, dealt, nodes_order, shares_advice, validation_share
from lead_trainer.data.packed_backend import PackedBackend
from lead_trainer.data.process_loader import loader_named
from lead_trainer.data.sample_order import FIRST_WINDOW, SHARD_WINDOW, epoch_order, in_turn
from lead_trainer.engine.checkpoints.resume import config_digest, not_learned
from lead_trainer.errors import BadConfig

NODES, RANKS = 125, 8  # of a node
EVEN = np.repeat(np.arange(400), 125)  # 400 shards of 125 samples, 3.2 shards a node
UNEVEN = np.repeat(np.arange(4000), 20 + np.arange(4000) * 7 % 41)  # 4,000 shards of 20 to 60

Indices = npt.NDArray[np.int64]


class Points(Samples):
    """Samples that are numbers, in shards; they may have lengths."""

    def __init__(self, shards: Indices, lengths: Indices | None = None) -> None:
        self.shards, self.lengths = shards, lengths

    def __len__(self) -> int:
        return len(self.shards)

    def epoch_draw(self, epoch: int) -> Indices:
        return np.arange(len(self))

    def shards_of(self, indices: Indices) -> Indices:
        return self.shards[indices]

    def fetch_shard(self, shard: int) -> bool:
        return True

    def group_lengths(self) -> Indices | None:
        return self.lengths

    def load(self, index: int, epoch: int) -> Sample:
        return {"index": index}


def of_ranks(source: Points, epoch: int, *, ranks: int, batch_size: int, canonical_nodes: int) -> list[Indices]:
    """Returns the samples of each rank, (steps, rows)."""
    of_all = {"batch_size": batch_size, "seed": 3, "world_size": ranks, "canonical_nodes": canonical_nodes}
    loaders = (Loader(source, stack, rank=rank, **of_all) for rank in range(ranks))
    return [np.stack(list(loader.sample_indices(epoch))) for loader in loaders]


@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("shards", [EVEN, UNEVEN], ids=["few even shards", "many uneven shards"])
def test_each_of_125_nodes_brings_its_125th_of_the_bytes(shards: Indices, epoch: int) -> None:
    samples_of = np.bincount(shards)  # as many bytes each: a shard's samples are its size
    order = nodes_order(np.arange(len(shards)), 3, epoch, shards, NODES * RANKS, NODES)
    assert np.array_equal(np.sort(order), np.arange(len(shards)))
    for node in range(NODES):
        ranks = [RankShare(NODES * RANKS, node * RANKS + local, NODES * RANKS, NODES) for local in range(RANKS)]
        read = np.concatenate([rank.rows(order).reshape(-1) for rank in ranks])
        brought = samples_of[np.unique(shards[read])].sum()
        assert brought / samples_of.sum() <= 1.3 / NODES
        ahead = ranks[-1].group_rows(order).reshape(-1)  # whose shards are fetched ahead
        assert np.array_equal(np.sort(ahead), np.sort(read))


@pytest.mark.parametrize("epoch", [0, 1])
def test_125_25_5_and_1_nodes_train_on_the_same_batches_of_125_canonical_ones(epoch: int) -> None:
    source, batch = Points(EVEN), NODES * RANKS
    (alone,) = of_ranks(source, epoch, ranks=1, batch_size=batch, canonical_nodes=NODES)
    whole = np.sort(alone)
    assert len(np.unique(whole)) == whole.size == len(EVEN)
    order = nodes_order(np.arange(len(EVEN)), 3, epoch, EVEN, batch, NODES)
    for nodes in (1, 5, 25, 125):
        ranks = nodes * RANKS
        rows = [RankShare(batch, rank, ranks, NODES).rows(order) for rank in range(ranks)]
        assert {of_rank.shape for of_rank in rows} == {(len(whole), batch // ranks)}
        assert np.array_equal(np.sort(np.concatenate(rows, axis=1)), whole)
        brought = [len(np.unique(EVEN[np.concatenate(rows[at : at + RANKS])])) for at in range(0, ranks, RANKS)]
        assert max(brought) <= -(-400 // nodes)


@given(
    count=st.integers(0, 300), shards=st.integers(1, 40), nodes=st.integers(1, 6), section=st.integers(1, 4),
    world=st.integers(1, 12), seed=st.integers(0, 2**40), epoch=st.integers(0, 3),
)  # fmt: skip
def test_every_drawn_sample_has_one_place_whatever_the_nodes_and_ranks(
    count: int, shards: int, nodes: int, section: int, world: int, seed: int, epoch: int
) -> None:
    batch = nodes * section * world
    draw, shard_of = np.arange(count) * 2, np.arange(count) * 7 % shards
    order = nodes_order(draw, seed, epoch, shard_of, batch, nodes)
    assert np.array_equal(np.sort(order), draw)
    if nodes == 1:
        assert np.array_equal(order, epoch_order(draw, seed, epoch, shard_of))
    parts = dealt(shard_of, nodes)
    assert {len(part) for part in parts} <= {count // nodes, -(-count // nodes)}
    belongs = [set(shard_of[part].tolist()) for part in parts]
    assert sum(map(len, belongs)) <= len(set().union(*belongs)) + nodes - 1
    if count >= batch:
        rows = [RankShare(batch, rank, world, nodes).rows(order) for rank in range(world)]
        full = order[: count // batch * batch].reshape(-1, batch)
        assert np.array_equal(np.sort(np.concatenate(rows, axis=1)), np.sort(full))


def test_each_node_comes_by_windows_of_its_own_shards_and_keeps_them_over_epochs() -> None:
    nodes, count = 4, 4 * 4 * SHARD_WINDOW
    shards = np.repeat(np.arange(count), 10)
    kept = []
    for epoch, window in ((0, FIRST_WINDOW), (1, SHARD_WINDOW), (2, SHARD_WINDOW)):
        order = nodes_order(np.arange(len(shards)), 0, epoch, shards, 8, nodes)
        own = [RankShare(8, rank, nodes, nodes).rows(order).reshape(-1) for rank in range(nodes)]
        turns = [in_turn(shards[each]).tolist() for each in own]
        for each, turn in zip(own, turns, strict=True):
            assert len({*shards[each][: window * 10].tolist()}) == window and len(turn) == count // nodes
        kept.append([set(turn) for turn in turns])
        assert len({tuple(turn) for turn in turns}) == nodes
    assert kept[0] == kept[1] == kept[2]


def test_samples_of_like_length_meet_in_a_batch_without_leaving_their_node() -> None:
    shards = np.repeat(np.arange(80), 40)
    source = Points(shards, np.arange(len(shards)) * 13 % 7)
    plain = of_ranks(Points(shards), 1, ranks=4, batch_size=16, canonical_nodes=4)
    grouped = of_ranks(source, 1, ranks=4, batch_size=16, canonical_nodes=4)
    for rank in range(4):
        assert sorted(grouped[rank].reshape(-1)) == sorted(plain[rank].reshape(-1))
    assert source.lengths is not None
    lengths = source.lengths[np.concatenate(grouped, axis=1)]
    assert np.mean(lengths.max(axis=1) - lengths.min(axis=1)) < 1  # of 6


def test_ranks_of_a_node_read_its_sections_alternately() -> None:
    order = np.arange(48)
    rows = [RankShare(24, rank, 4, 2).rows(order).tolist()[0] for rank in range(4)]
    assert rows == [[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11], [12, 14, 16, 18, 20, 22], [13, 15, 17, 19, 21, 23]]


def test_nodes_that_do_not_divide_the_canonical_ones_share_every_batch_too() -> None:
    order = nodes_order(np.arange(len(EVEN)), 0, 1, EVEN, 60, 4)
    rows = [RankShare(60, rank, 6, 4).rows(order) for rank in range(6)]
    assert np.array_equal(np.concatenate(rows, axis=1).sum(axis=1), order[:49_980].reshape(-1, 60).sum(axis=1))
    assert "no multiple of the 3 nodes" in shares_advice(3, 6, 4)
    assert "each of the 3 nodes fetches every shard; canonical_nodes: 3" in shares_advice(3, 6, 1)
    assert shares_advice(1, 8, 1) == shares_advice(2, 16, 4) == shares_advice(4, 32, 4) == ""


@pytest.mark.parametrize(("recipe", "keys"), [("lead", {}), ("distill", {"model": "baseline"})])
def test_a_resume_with_another_number_of_canonical_nodes_is_refused(recipe: str, keys: dict[str, str]) -> None:
    found = load_recipe(recipe)
    configs = [found.config({**keys, "canonical_nodes": nodes}) for nodes in (1, 4)]
    assert [config.canonical_nodes for config in configs] == [1, 4]
    digests = {config_digest(config.model_dump(mode="json"), not_learned(found)) for config in configs}
    assert len(digests) == 2  # and `refuse_other_run` names the key that differs


@pytest.mark.parametrize("found", [0, 3, 16])
def test_a_batch_without_equal_sections_is_one_error_that_says_what_to_do(found: int) -> None:
    expected = rf"canonical_nodes: found {found}, expected a divisor of batch_size, which is 8: .*; set it to"
    with pytest.raises(BadConfig, match=expected):
        Loader(Points(EVEN), stack, batch_size=8, seed=0, canonical_nodes=found)


def test_a_split_is_evaluated_once_and_by_the_nodes_that_train_on_its_shards() -> None:
    draw, ranks = np.flatnonzero(np.arange(len(UNEVEN)) % 10 == 3), 8
    training = np.setdiff1d(np.arange(len(UNEVEN)), draw)
    shares = [validation_share(draw, UNEVEN[draw], rank, ranks, ranks) for rank in range(ranks)]
    assert np.array_equal(np.sort(np.concatenate(shares)), draw)
    assert max(map(len, shares)) == -(-len(draw) // ranks)
    for share, part in zip(shares, dealt(UNEVEN[training], ranks), strict=True):
        assert np.isin(UNEVEN[share], UNEVEN[training[part]]).mean() > 0.9
    alone = [validation_share(draw, UNEVEN[draw], rank, ranks, 1).tolist() for rank in range(ranks)]
    assert alone == [draw[rank::ranks].tolist() for rank in range(ranks)]


@pytest.mark.parametrize("kind", ["ring", "process"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_each_of_two_nodes_brings_half_of_a_real_cache(tmp_path: Path, kind: str) -> None:
    store = FolderStore(tmp_path / "store")
    digest = build_test_cache(store)
    whole, brought, indices = 0, [], Counter[int]()
    for rank in range(2):
        cache = CacheReader(store, digest, PackedBackend(store, tmp_path / f"node{rank}"))
        loader = loader_named(kind)(
            BytesSamples(cache), stack, batch_size=BATCH, seed=1, rank=rank, world_size=2, canonical_nodes=2, threads=2
        )
        for epoch in range(2):
            for batch in loader.batches(epoch):
                indices.update(batch["index"].tolist())
        whole = sum(entry.object.size for entry in cache.manifest.shards)
        cache.close()
        files = (tmp_path / f"node{rank}/shards").iterdir()
        brought.append(sum(path.stat().st_size for path in files if len(path.name) == 64))
        assert cache.stats().fetched_bytes == brought[-1], "no shard twice in two epochs"
    assert indices == Counter(dict.fromkeys(range(SAMPLES), 2))
    shards = len(cache.manifest.shards)
    assert shards >= 10 and all(size <= whole * (0.5 + 1 / shards) for size in brought)


def test_a_resume_on_another_number_of_nodes_goes_on_with_the_same_batches(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    cache = CacheReader(store, build_test_cache(store), PackedBackend(store, tmp_path / "ssd"))

    def batches(ranks: int, start_step: int) -> list[list[int]]:
        loaders = [
            Loader(BytesSamples(cache), stack, batch_size=BATCH, seed=1, rank=rank, world_size=ranks, canonical_nodes=4)
            for rank in range(ranks)
        ]
        of_each = [[batch["index"].tolist() for batch in loader.batches(1, start_step)] for loader in loaders]
        return [sorted(index for part in parts for index in part) for parts in zip(*of_each, strict=True)]

    uninterrupted = batches(4, 0)
    assert len(uninterrupted) == SAMPLES // BATCH
    for ranks in (4, 2, 1):
        assert batches(ranks, 5) == uninterrupted[5:]
    cache.close()


def test_what_is_fetched_ahead_is_what_the_nodes_ranks_read() -> None:
    shards, fetched, done = np.repeat(np.arange(8), 8), list[int](), threading.Event()

    class Watched(Points):
        def fetch_shard(self, shard: int) -> bool:
            fetched.append(shard)
            if len(fetched) == 4:
                done.set()
            return True

    batches: Any = Loader(
        Watched(shards), stack, batch_size=8, seed=0, rank=3, world_size=4, canonical_nodes=2, threads=1
    ).batches(0)
    next(batches)
    assert done.wait(60.0)
    batches.close()
    own = set(shards[dealt(shards, 2)[1]].tolist())
    assert set(fetched) == own and len(fetched) == len(own) == 4
