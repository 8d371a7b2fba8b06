"""Every batch holds each data set's share, factors and counts reach the draw, and a loss sees only its own set."""

import lzma
import pickle
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lead_protocol.job import CheckpointPolicy, DatasetSource, OwnerIdentity, TrainJob
from lead_protocol.progress_record import parse_progress
from lead_protocol.store.folder import FolderStore
from lead_testing import shared_dir
from lead_testing.on_demand_cache import OnDemandCache
from lead_trainer.contract.samples import Samples
from lead_trainer.contract.step import StepContext
from lead_trainer.data.cache_tables import CollectionRows
from lead_trainer.data.loader import Loader
from lead_trainer.data.node_shares import RankShare
from lead_trainer.data.row_texts import RowTexts
from lead_trainer.data.sample_order import FIRST_WINDOW, SHARD_WINDOW
from lead_trainer.engine.attempt.location import RunLocation
from lead_trainer.engine.attempt.run import run_attempt
from lead_trainer.engine.group.ddp import Group
from lead_trainer.engine.group.stop import StopFlag
from lead_trainer.engine.step.state import means
from lead_trainer.engine.validation.validation import Sums
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.example_worlds.lead.real_sets import write_navsim_tree
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.data_sources import CARLA, NAVSIM, WAYMO, DataSource
from lead_trainer.recipes.lead.dataset import LeadSamples
from lead_trainer.recipes.lead.dataset_collate import collate
from lead_trainer.recipes.lead.dataset_mix import MixedSamples, open_samples
from lead_trainer.recipes.lead.ingest.plain_pickle import read_plain
from lead_trainer.recipes.lead.losses import compute_losses
from lead_trainer.recipes.lead.model import build_model
from lead_trainer.recipes.lead.preparation import LeadPreparation
from lead_trainer.recipes.lead.recipe import RECIPE, on_device
from lead_trainer.world import World

ROUTE = "data/SignalizedJunctionLeftTurn/999_Rep-1_Town03_301_route0_11_04_01_11_59"
SMALL = {"use_carla_data": True, "used_cameras": [True] * 3, "image_height": 96, "image_width": 288}
AT_A_JUNCTION = {  # a bucket that is drawn three times an epoch
    "visual_visibility": 0, "light_hazard": False, "slower_occluded_junction": True, "distance_to_next_junction": 3.0,
    "current_active_scenario_type": None, "previous_active_scenario_type": None,
}  # fmt: skip
assert RECIPE.validation is not None
VALIDATION = RECIPE.validation
EQUAL = {"carla_num_samples": 6, "navsim_num_samples": 6}


SHARD = 5  # samples


class Numbered(Samples):
    """A data set of so many samples that are only numbers."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def epoch_draw(self, epoch: int) -> Any:
        return np.arange(self.count)

    def shards_of(self, indices: Any) -> Any:
        return indices // SHARD

    def name(self, index: int) -> str:
        return str(index)

    def load(self, index: int, epoch: int) -> dict[str, Any]:
        return {"index": index}


def mixed(values: dict[str, Any], *sizes: tuple[DataSource, int]) -> MixedSamples:
    config = load_config({"LTF": True, **values})
    parts: dict[DataSource, list[Any]] = {}
    for source, size in sizes:
        parts.setdefault(source, []).append(Numbered(size))
    return MixedSamples(config, parts)


def batches(samples: MixedSamples, batch_size: int, epoch: int) -> list[Any]:
    return list(Loader(samples, collate, batch_size=batch_size, seed=0).sample_indices(epoch))


def test_a_set_of_which_nothing_is_drawn_is_refused() -> None:
    with pytest.raises(BadData, match="an epoch draws no carla sample"):
        mixed({}, (CARLA, 0)).epoch_draw(0)


def test_every_batch_and_every_rank_gets_equal_shares() -> None:
    samples = mixed({"use_navsim_data": True}, (CARLA, 50), (NAVSIM, 50))
    order = samples.composed_order(3, 16)
    steps = 50 // 16  # of the first set alone, as in LEAD
    assert len(order) == steps * 16
    for step in range(steps):
        for rank in range(4):
            share = RankShare(16, rank, 4).rows(order)[step]
            assert np.count_nonzero(share < 50) == 2 == np.count_nonzero(share >= 50)
    assert max(Counter(order.tolist()).values()) == 1
    assert [batch.tolist() for batch in batches(samples, 16, 3)] == order.reshape(steps, 16).tolist()
    assert not np.array_equal(order, samples.composed_order(4, 16))


@pytest.mark.parametrize(("epoch", "window"), [(0, FIRST_WINDOW), (1, SHARD_WINDOW)])
def test_each_set_comes_by_windows_of_its_shards_so_a_cold_node_can_begin(epoch: int, window: int) -> None:
    size = 4 * SHARD_WINDOW * SHARD
    samples = mixed({"use_navsim_data": True}, (CARLA, size), (NAVSIM, size))
    order = samples.composed_order(epoch, 8)
    by_set = [order[order < size], order[order >= size] - size]
    for of_set in by_set:
        firsts = of_set[: window * SHARD].tolist()
        assert len({first // SHARD for first in firsts}) == window  # whole, before any other shard is needed
        assert len({*of_set.tolist()}) == len(of_set)
    assert any(
        of_set[at : at + SHARD].tolist() != sorted(of_set[at : at + SHARD]) for of_set in by_set for at in (0, 5)
    )
    assert by_set[0].tolist() != by_set[1].tolist()


def test_caches_of_one_set_are_spread_evenly_over_an_epoch() -> None:
    samples = mixed({}, (CARLA, 300), (CARLA, 100))
    orders = [samples.composed_order(epoch, 8) for epoch in (0, 1)]
    for order in orders:
        assert sorted(order.tolist()) == list(range(400))
        assert {*(order >= 300).reshape(20, 20).sum(axis=1).tolist()} == {5}
    assert not np.array_equal(orders[0] >= 300, orders[1] >= 300)
    firsts = orders[0][orders[0] >= 300][:SHARD] - 300
    assert len({*(firsts // SHARD).tolist()}) == FIRST_WINDOW


@pytest.mark.parametrize("batch_size", [64, 8])
def test_carlas_share_is_annealed_as_in_lead_for_any_batch(batch_size: int) -> None:
    samples = mixed({"use_navsim_data": True, "schedule_carla_num_samples": True}, (CARLA, 640), (NAVSIM, 640))
    expected = {0: 40, 1: 32, 2: 32, 3: 24, 6: 24, 7: 16, 14: 16, 15: 8, 30: 8, 31: 0, 60: 0}
    for epoch, of_64 in expected.items():
        drawn = batches(samples, batch_size, epoch)
        assert len(drawn) == 640 // batch_size  # the learning rate follows the steps: every epoch has as many
        assert {int(np.count_nonzero(batch < 640)) for batch in drawn} == {of_64 * batch_size // 64}


def test_a_batch_that_cannot_be_shared_is_refused() -> None:
    samples = mixed({"use_navsim_data": True}, (CARLA, 10), (NAVSIM, 10))
    with pytest.raises(BadConfig, match="batch_size: found 5, expected a multiple of 2"):
        samples.composed_order(0, 5)


@pytest.mark.parametrize("values", [{}, {"schedule_carla_num_samples": True}])
@pytest.mark.parametrize("epoch", [0, 3])
def test_each_node_of_a_mix_has_every_sets_share_from_shards_of_its_own(values: dict[str, Any], epoch: int) -> None:
    samples = mixed({"use_navsim_data": True, **values}, (CARLA, 640), (NAVSIM, 640))
    nodes, batch = 4, 32
    order = samples.composed_order(epoch, batch, nodes)
    assert len(order) == 640 and max(Counter(order.tolist()).values()) == 1
    by_node = order.reshape(-1, nodes, batch // nodes)
    assert len({*np.count_nonzero(by_node < 640, axis=2).reshape(-1).tolist()}) == 1
    shards = [set(samples.shards_of(by_node[:, node].reshape(-1)).tolist()) for node in range(nodes)]
    assert sum(map(len, shards)) <= len(set().union(*shards)) + 2 * (nodes - 1)  # of each set a shard a border
    for world in (1, 2, 4, 8):
        loaders = [
            Loader(samples, collate, batch_size=batch, seed=0, rank=rank, world_size=world, canonical_nodes=nodes)
            for rank in range(world)
        ]
        rows = np.concatenate([np.stack(list(loader.sample_indices(epoch))) for loader in loaders], axis=1)
        assert np.array_equal(np.sort(rows), np.sort(order.reshape(-1, batch)))


def test_caches_of_one_set_are_dealt_to_nodes_and_every_sample_comes_once() -> None:
    samples = mixed({}, (CARLA, 300), (CARLA, 100))
    order = samples.composed_order(1, 8, 2)
    assert sorted(order.tolist()) == list(range(400))
    halves = [set(samples.shards_of(order.reshape(-1, 2, 4)[:, node].reshape(-1)).tolist()) for node in range(2)]
    assert len(halves[0] & halves[1]) <= 1


def test_a_mix_that_cannot_be_dealt_to_nodes_is_refused_with_the_keys() -> None:
    samples = mixed({"use_navsim_data": True}, (CARLA, 10), (NAVSIM, 10))
    with pytest.raises(BadConfig, match=r"batch_size: found 4, expected a multiple of 8, .* 4 canonical_nodes"):
        samples.composed_order(0, 4, 4)
    with pytest.raises(BadConfig, match="canonical_nodes: found 20, expected at most 10, the samples that an epoch"):
        samples.composed_order(0, 40, 20)
    with pytest.raises(BadConfig, match="canonical_nodes: found 3, expected a divisor of batch_size, which is 64"):
        load_config({"canonical_nodes": 3})


def test_sets_of_unequal_size_are_refused_with_their_sizes_and_keys() -> None:
    samples = mixed({"use_navsim_data": True}, (CARLA, 10), (NAVSIM, 12))
    with pytest.raises(BadConfig, match=r"carla_num_samples, navsim_num_samples: .* draw carla 10, navsim 12"):
        samples.epoch_draw(0)
    assert len(mixed({"use_navsim_data": True, **EQUAL}, (CARLA, 10), (NAVSIM, 12)).epoch_draw(0)) == 6


def test_an_epoch_on_two_sets_has_leads_steps_or_those_of_both() -> None:
    """LEAD's MixedSampler counts len(first sampler) // batch_size, and its loop ends there."""
    for values, steps in (({}, 6), ({"compat": {"one_set_mixed_epochs": False}}, 12)):
        samples = mixed({"use_navsim_data": True, **values}, (CARLA, 50), (NAVSIM, 50))
        drawn = np.concatenate(batches(samples, 8, 0))
        assert len(drawn) == 8 * steps == len(samples.epoch_draw(0)) // 8 * 8
        assert max(Counter(drawn.tolist()).values()) == 1
    samples = mixed({"use_navsim_data": True}, (CARLA, 50), (NAVSIM, 50))
    assert len(set(np.concatenate([*batches(samples, 8, 0), *batches(samples, 8, 1)]).tolist())) > 50


def test_a_wanted_number_is_a_new_subset_each_epoch_or_repeats_evenly() -> None:
    few = mixed({"carla_num_samples": 20}, (CARLA, 100))
    draws = [few.epoch_draw(epoch) for epoch in range(3)]
    assert all(len(set(draw.tolist())) == 20 for draw in draws)
    assert not np.array_equal(draws[0], draws[1]) and len(set(np.concatenate(draws).tolist())) > 40
    many = mixed({"carla_num_samples": 250}, (CARLA, 100))
    assert set(Counter(many.epoch_draw(0).tolist()).values()) == {2, 3}


def test_waymo_trains_on_every_fifth_frame_and_on_others_each_epoch() -> None:
    values = {"use_carla_data": False, "use_waymo_e2e_data": True, "use_planning_decoder": True}
    draws = [mixed(values, (WAYMO, 100)).epoch_draw(epoch) for epoch in range(20)]
    assert all(len(set(draw.tolist())) == 20 for draw in draws)
    assert len(set(np.concatenate(draws).tolist())) > 95


def test_caches_of_one_set_are_joined() -> None:
    samples = mixed({}, (CARLA, 5), (CARLA, 3))
    assert sorted(samples.epoch_draw(0).tolist()) == list(range(8))
    assert [samples.load(index, 0)["index"] for index in range(8)] == [0, 1, 2, 3, 4, 0, 1, 2]


class OneCollection:
    """A cache without records: five buckets with the factors LEAD uses."""

    factors = (0.0, 0.1, 0.6, 1.0, 3.0)
    size = 50

    def __init__(self) -> None:
        self.config = LeadPreparation().config_keys({})

    def rows(self, collection: str) -> CollectionRows:
        count = self.size * len(self.factors)
        numbers = np.arange(count)
        return CollectionRows(
            collection, tuple("abcde"), self.factors, {}, numbers // self.size,
            RowTexts(("r",), np.zeros(count, np.int32)), numbers, numbers,
        )  # fmt: skip

    def sample_shards(self, samples: Any) -> Any:
        return samples

    @cached_property
    def _metas(self) -> Any:
        return None

    def metas(self) -> Any:
        return self._metas


def test_mixture_factors_reach_the_sampler_in_every_epoch() -> None:
    samples = MixedSamples(load_config({}), {CARLA: [LeadSamples(load_config({}), OneCollection())]})  # type: ignore[arg-type]
    seen = np.zeros(250, int)
    per_epoch = set()
    for epoch in range(40):
        drawn = np.concatenate(batches(samples, 1, epoch))
        counts = np.bincount(drawn // 50, minlength=5)
        assert counts.tolist() == [int(50 * factor) for factor in OneCollection.factors]
        assert max(Counter(drawn[drawn < 200].tolist()).values()) == 1  # without repetition up to 1
        seen += np.bincount(drawn, minlength=250)
        per_epoch.add(tuple(sorted(drawn[drawn < 100].tolist())))
    assert len(per_epoch) > 30  # another subset each epoch, which LEAD's workers never get
    assert not seen[:50].any() and seen[50:100].min() >= 0 and np.count_nonzero(seen[50:100]) > 45
    assert seen[200:].min() > 60 and (seen[150:200] == 40).all()


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("trees")
    shutil.copytree(shared_dir() / "golden/lead_data/carla_leaderboard2" / ROUTE, root / "carla" / ROUTE)
    for path in (root / "carla").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for path in (root / "carla").rglob("metas/*.pkl"):
        meta = read_plain(path.read_bytes(), path.name)
        path.write_bytes(lzma.compress(pickle.dumps({**meta, **AT_A_JUNCTION}), preset=0))
    write_navsim_tree(root / "navsim", logs=2, tokens=4, size=(96, 288))
    return {"carla": root / "carla", "navsim": root / "navsim"}


def caches(trees: dict[str, Path]) -> dict[str, Any]:
    return {
        name: OnDemandCache(
            root,
            {**SMALL, "preset": "demo_navsim", "source_dataset": name},
            ["navsim_pretrain"] if name == "carla" else ["full_pretrain"],
        )
        for name, root in trees.items()
    }


def test_a_mixed_batch_has_each_sets_own_losses(trees: dict[str, Path]) -> None:
    config = load_config({**SMALL, **EQUAL, "batch_size": 4}, "demo_navsim")
    samples = open_samples(config, caches(trees))
    order = samples.composed_order(0, 4)[:4]
    loaded = [samples.load(int(index), 0) for index in order]
    assert [sample["source_dataset"] for sample in loaded] == [1, 1, 2, 2]
    torch.manual_seed(0)
    model = build_model(config).eval()

    def losses(chosen: list[Any]) -> dict[str, float]:
        batch = on_device(collate(chosen), config)
        with torch.no_grad():
            report = compute_losses(config, model(batch), batch)
        return {key: float(value) for key, value in report.raw.items()}

    both, carla, navsim = losses(loaded), losses(loaded[:2]), losses(loaded[2:])
    assert set(both) == set(carla) == set(navsim)
    for key, value in both.items():
        own, other = (navsim, carla) if key.startswith("navsim_") else (carla, navsim)
        assert value == pytest.approx(own[key], rel=1e-4), key
        assert other[key] == 0.0, key
        assert value > 0 or "velocity" in key, key
    assert max(int(sample["semantic"].max()) for sample in loaded[:2]) <= 9
    assert all(7 not in sample["semantic"] for sample in loaded[:2])  # no special vehicles beside real data


def test_what_is_measured_of_two_sets_does_not_depend_on_how_samples_lie_in_batches(trees: dict[str, Path]) -> None:
    config = load_config({**SMALL, **EQUAL, "batch_size": 4}, "demo_navsim")
    samples = open_samples(config, caches(trees))
    loaded = [samples.load(int(index), 0) for index in samples.composed_order(0, 4)[:4]]
    torch.manual_seed(0)
    model = build_model(config).eval()

    def measured(*batches: list[Any]) -> tuple[Mapping[str, float], dict[str, float]]:
        sums: dict[str, float] = {}
        counts: dict[str, float] = {}
        for chosen in batches:
            with torch.no_grad():
                totals = VALIDATION.evaluate(
                    model, on_device(collate(chosen), config), StepContext(config=config)
                ).totals
            for tag, (total, count) in totals.items():
                sums[tag], counts[tag] = sums.get(tag, 0.0) + float(total), counts.get(tag, 0) + int(count)
        return VALIDATION.summary(config, {tag: sums[tag] / n for tag, n in counts.items() if n}), counts

    together, counts = measured(loaded)
    assert counts["loss_semantic"] == counts["navsim_loss_bev_semantic"] == 2 and counts["loss"] == 4
    assert {"semantic_miou", "bev_semantic_miou"} <= together.keys()
    for batches in ([loaded[:2], loaded[2:]], [loaded[:1], loaded[1:3], loaded[3:]]):
        told, seen = measured(*batches)
        assert seen == counts
        assert told == pytest.approx(together, rel=1e-4)
    assert together["loss"] == pytest.approx(float(_loss_of(model, loaded, config)), rel=1e-4)


def test_a_head_that_is_never_finite_leaves_no_loss_by_which_a_checkpoint_could_be_the_best(
    trees: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config({**SMALL, **EQUAL, "batch_size": 4}, "demo_navsim")
    samples = open_samples(config, caches(trees))
    loaded = [samples.load(int(index), 0) for index in samples.composed_order(0, 4)[:4]]
    batches = [on_device(collate(chosen), config) for chosen in (loaded[:2], loaded[2:])]
    torch.manual_seed(0)
    model = build_model(config).eval()

    def told(batches: list[Any]) -> Mapping[str, float]:
        sums = Sums()
        for batch in batches:
            sums.add(VALIDATION.evaluate(model, batch, StepContext(config=config)))
        return VALIDATION.summary(config, means(sums.as_pairs()))

    sound = told(batches)
    assert not any("labelled" in tag for tag in sound) and sound.keys() >= {"loss", "navsim_loss_bev_semantic"}
    assert "loss" in told(batches[:1])  # no sample of the other set, so nothing of it failed
    with torch.no_grad():
        next(model.bev_semantic_decoder_navsim.parameters()).fill_(torch.inf)  # type: ignore[union-attr]
    overflowed = told(batches)
    assert sound.keys() - overflowed.keys() >= {"loss", "navsim_loss_bev_semantic"}
    assert overflowed["loss_semantic"] == sound["loss_semantic"]


def _loss_of(model: torch.nn.Module, loaded: list[Any], config: Any) -> torch.Tensor:
    batch = on_device(collate(loaded), config)
    with torch.no_grad():
        return compute_losses(config, model(batch), batch).total


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_a_run_trains_on_the_caches_of_two_sets(trees: dict[str, Path], tmp_path: Path, one_thread: None) -> None:
    from lead_protocol.job import BuildJob, FolderSource
    from lead_testing.built_caches import build_and_publish
    from lead_trainer.data.source_tree import FolderTree

    store, owner = FolderStore(tmp_path / "store"), OwnerIdentity(namespace="local", name="run", uid="uid")
    datasets = []
    for name, root in trees.items():
        job = BuildJob(
            owner=owner, generation=1, attempt=1, index=0, parallelism=1, recipe="lead",
            source=FolderSource(path=name), collections=[],
            config={**SMALL, "preset": "demo_navsim", "source_dataset": name},
        )  # fmt: skip
        digest = build_and_publish(job, store, FolderTree(root), RECIPE, lambda record: None).digest
        datasets.append(DatasetSource(name=f"{name}-cache", digest=digest))
    config = {**SMALL, **EQUAL, "num_threads": 2, "visualize_training": False, "log_scalars_frequency": 1}
    train = TrainJob(
        owner=owner, stage="train", seed=0, attempt=1, recipe="lead", preset="demo_navsim", config=config, epochs=1,
        nodes=1, procs_per_node=1, datasets=datasets, checkpoint=CheckpointPolicy(),
    )  # fmt: skip
    run_attempt(train, RunLocation(store, tmp_path / "scratch"), Group(World(), torch.device("cpu")), StopFlag())
    manifests = list(store.list(train.keys.manifests_prefix))
    assert len(manifests) == 1
    assert '"step":3' in store.get(manifests[0].key, max_bytes=1 << 20).decode().replace(" ", "")
    told = parse_progress(store.get(train.keys.progress(1), max_bytes=4096))
    assert told is not None and told.cache_fetched_bytes > 0 and not told.cache_degraded
    assert told.loading_s["load"] > 0 and set(told.loading_s) == {"load", "copy", "outage", "wait", "step"}
