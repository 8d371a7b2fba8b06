"""The order is a pure function of (seed, epoch): ranks share it without gap or overlap, and epochs differ."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead_trainer.data.node_shares import RankShare
from lead_trainer.data.sample_order import (
    FIRST_WINDOW,
    LENGTH_WINDOW,
    SHARD_WINDOW,
    draw_bucket,
    epoch_order,
    grouped_by_length,
    in_turn,
    rank_batch_size,
    shuffled,
    steps_in_epoch,
    unit_float,
)
from lead_trainer.errors import BadConfig, BadData


@given(st.integers(0, 200), st.integers(0, 2**40), st.integers(0, 100))
def test_an_order_is_a_permutation_of_the_draw(count: int, seed: int, epoch: int) -> None:
    draw = np.arange(count) * 3
    assert sorted(epoch_order(draw, seed, epoch)) == draw.tolist()


def test_orders_of_two_epochs_and_of_two_seeds_differ() -> None:
    orders = [tuple(epoch_order(np.arange(50), seed, epoch)) for seed in (0, 1) for epoch in (0, 1)]
    assert len(set(orders)) == 4


def test_the_order_of_today_is_the_order_of_tomorrow() -> None:
    assert shuffled(10, 0, 0).tolist() == [7, 5, 9, 3, 8, 1, 4, 2, 6, 0]


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 100))
def test_ranks_share_each_global_batch_without_overlap(world: int, share: int, seed: int) -> None:
    order, batch = epoch_order(np.arange(100), seed, 0), world * share
    rows = [RankShare(batch, rank, world).rows(order) for rank in range(world)]
    for step in range(steps_in_epoch(100, batch)):
        parts = [of_rank[step].tolist() for of_rank in rows]
        assert {len(part) for part in parts} == {share}
        assert sorted(index for part in parts for index in part) == sorted(
            order[step * batch : (step + 1) * batch].tolist()
        )


def test_a_batch_that_ranks_cannot_share_is_a_config_error() -> None:
    with pytest.raises(BadConfig, match="batch_size: found 3"):
        rank_batch_size(3, 2)


def test_fewer_samples_than_a_batch_is_a_data_error_that_says_so() -> None:
    with pytest.raises(BadData, match="5 samples, fewer than one batch of 8"):
        steps_in_epoch(5, 8)


@given(st.integers(1, 60), st.floats(0, 3), st.integers(0, 20))
def test_a_bucket_is_drawn_factor_times_its_size(count: int, factor: float, epoch: int) -> None:
    drawn = draw_bucket(count, factor, 0, epoch, 0)
    assert len(drawn) == int(count * factor)
    assert all(0 <= index < count for index in drawn)
    if factor <= 1:
        assert len(set(drawn.tolist())) == len(drawn)


def test_coins_are_fair() -> None:
    coins = [unit_float(0, 0, sample, 1) for sample in range(4000)]
    assert 0.47 < np.mean(np.array(coins) < 0.5) < 0.53


@given(st.integers(1, 400), st.integers(1, 60), st.integers(0, 2**40), st.integers(0, 3))
def test_shards_come_in_windows_and_in_smaller_ones_in_the_first_epoch(
    count: int, shards: int, seed: int, epoch: int
) -> None:
    draw = np.arange(count)
    shard_of = shuffled(count, seed, 9) % shards
    order = epoch_order(draw, seed, epoch, shard_of)
    assert sorted(order) == draw.tolist()
    turns = in_turn(shard_of[order]).tolist()
    assert sorted(turns) == sorted(set(shard_of.tolist()))
    size = SHARD_WINDOW if epoch else FIRST_WINDOW
    window = {shard: place // size for place, shard in enumerate(turns)}
    windows = [window[shard] for shard in shard_of[order].tolist()]
    assert windows == sorted(windows)
    if len(turns) <= size:
        assert order.tolist() == epoch_order(draw, seed, epoch).tolist()


def test_epochs_pair_other_shards_and_each_window_is_shuffled_through() -> None:
    shard_of = np.repeat(np.arange(64), 50)
    orders = [shard_of[epoch_order(np.arange(3200), 0, epoch, shard_of)] for epoch in (1, 2)]
    for shards in orders:
        windows = shards.reshape(-1, SHARD_WINDOW * 50)
        assert all(len(set(window.tolist())) == SHARD_WINDOW for window in windows)
        assert all(len(set(window[:50].tolist())) > SHARD_WINDOW // 2 for window in windows)
    firsts = [frozenset(shards[: SHARD_WINDOW * 50].tolist()) for shards in orders]
    assert firsts[0] != firsts[1]


def test_grouping_by_length_shuffles_batches_near_where_the_order_had_them() -> None:
    size = 4 * LENGTH_WINDOW
    order, lengths = np.arange(10 * size + 3), np.arange(10 * size + 3) % 7
    windows = [grouped_by_length(order, lengths, 4, 0, epoch).reshape(10, size) for epoch in (0, 1)]
    for number in range(10):
        assert sorted(windows[0][number].tolist()) == order[number * size : (number + 1) * size].tolist()
    assert not np.array_equal(*windows)
    lengths_of = lengths[windows[0].reshape(-1, 4)]
    assert np.mean(lengths_of.max(axis=1) != lengths_of.min(axis=1)) < 0.2  # batches at the border of two lengths
