"""The preparation reads nothing but the keys of the digest, makes small sizes too, and names a file that is missing."""

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lead_protocol.store.folder import FolderStore
from lead_testing import shared_dir
from lead_testing.built_caches import build_and_publish, whole_build
from lead_testing.golden_samples import rows_of
from lead_testing.logged import Logged
from lead_trainer.contract.raw_data import SampleKey, SourceFile
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.loader import Loader
from lead_trainer.data.process_loader import ProcessLoader
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.dataset import LeadSamples
from lead_trainer.recipes.lead.dataset_collate import collate
from lead_trainer.recipes.lead.preparation import LeadPreparation
from lead_trainer.recipes.lead.recipe import RECIPE, on_device

ROUTE = "data/SignalizedJunctionLeftTurn/999_Rep-1_Town03_301_route0_11_04_01_11_59"


@cache
def golden_tree() -> FolderTree:
    return FolderTree(shared_dir() / "golden/lead_data/carla_leaderboard2")


class NotedReads(Mapping[str, Any]):
    """A mapping that notes which keys are asked for."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values_, self.read = dict(values), set[str]()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return self.values_[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_)

    def __len__(self) -> int:
        return len(self.values_)


def build(tree: Any, store: FolderStore, config: Mapping[str, Any]) -> str:
    job = whole_build("lead", ["full_pretrain", "full_posttrain"], config)
    return build_and_publish(job, store, tree, RECIPE, lambda record: None).digest


@pytest.fixture(scope="module")
def small_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One route of the golden tree."""
    root = tmp_path_factory.mktemp("tree")
    shutil.copytree(shared_dir() / "golden/lead_data/carla_leaderboard2" / ROUTE, root / ROUTE)
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return root


@pytest.fixture(scope="module")
def demo(small_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> CacheReader:
    """A cache of that route with the sizes of the preset `demo`."""
    store = FolderStore(tmp_path_factory.mktemp("store"))
    return CacheReader(store, build(FolderTree(small_tree), store, {"preset": "demo"}))


def test_every_key_read_is_in_the_digest_and_every_key_of_the_digest_is_read() -> None:
    preparation = LeadPreparation()
    keys = NotedReads(preparation.config_keys({}))
    scan = preparation.scan(golden_tree(), keys, ["full_pretrain", "full_posttrain"])
    preparation.record(golden_tree(), keys, scan.samples[0])  # a key that is not there would raise KeyError
    preparation.route_metas(golden_tree(), keys, scan.samples[0].route, [scan.samples[0].frame])
    assert keys.read == set(keys)


def test_keys_that_only_training_reads_do_not_change_the_digest_keys() -> None:
    preparation = LeadPreparation()
    base = preparation.config_keys({})
    assert preparation.config_keys({"lr": 0.1, "seed": 5, "logdir": "x", "use_planning_decoder": True}) == base
    assert preparation.config_keys({"hist_max_per_pixel": 4}) != base
    assert preparation.config_keys({"preset": "demo"})["image_height"] == 96


def test_an_unknown_key_of_a_cache_is_refused() -> None:
    with pytest.raises(BadConfig, match="hist_max_per_pixel"):
        LeadPreparation().config_keys({"hist_max_per_pixle": 4})


@pytest.mark.parametrize("folder", ["rgb", "depth_perturbated", "radar", "metas"])
def test_a_route_that_lacks_a_file_is_left_out_with_a_code_and_the_files_name(folder: str, logged: Logged) -> None:
    class Gap(FolderTree):
        def files(self) -> Sequence[SourceFile]:
            return [file for file in super().files() if not file.path.startswith(f"{ROUTE}/{folder}/0009")]

    preparation, tree = LeadPreparation(), Gap(shared_dir() / "golden/lead_data/carla_leaderboard2")
    scan = preparation.scan(tree, preparation.config_keys({}), ["full_pretrain"])
    (verdict,) = [verdict for verdict in scan.verdicts if verdict.route == ROUTE]
    assert (verdict.kept, verdict.reason) == (False, "missing_files")
    assert ROUTE not in {key.route for key in scan.samples} and len(scan.samples) > 0
    assert f"{ROUTE}/{folder}/0009" in str(logged)


def test_a_file_that_only_pretraining_draws_costs_pretraining_alone(logged: Logged) -> None:
    class Gap(FolderTree):
        def files(self) -> Sequence[SourceFile]:
            return [file for file in super().files() if file.path != f"{ROUTE}/rgb/0001.jpg"]

    preparation, tree = LeadPreparation(), Gap(shared_dir() / "golden/lead_data/carla_leaderboard2")
    scan = preparation.scan(tree, preparation.config_keys({}), ["full_posttrain", "full_pretrain"])
    used = {one.name: {scan.samples[n].route for n in one.buckets[0].samples} for one in scan.collections}
    assert {name: ROUTE in routes for name, routes in used.items()} == {"full_posttrain": True, "full_pretrain": False}
    assert next(verdict.reason for verdict in scan.verdicts if verdict.route == ROUTE) == "kept"
    assert f"route {ROUTE} is left out of pretraining: file {ROUTE}/rgb/0001.jpg is missing" in str(logged)
    logged.clear()
    preparation.scan(tree, preparation.config_keys({}), ["full_posttrain"])
    assert not logged


def test_a_file_that_no_stage_draws_may_be_missing() -> None:
    class Gap(FolderTree):
        def files(self) -> Sequence[SourceFile]:
            return [file for file in super().files() if not file.path.startswith(f"{ROUTE}/rgb/0000")]

    preparation, tree = LeadPreparation(), Gap(shared_dir() / "golden/lead_data/carla_leaderboard2")
    scan = preparation.scan(tree, preparation.config_keys({}), ["full_pretrain"])
    assert ROUTE in {key.route for key in scan.samples}


@pytest.mark.parametrize(
    "folder", ["rgb", "semantics_perturbated", "depth", "hdmap", "lidar", "radar", "bboxes", "metas"]
)
@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_bad_raw_file_is_named_with_its_route(folder: str, damage: str) -> None:
    class Damaged(FolderTree):
        def read(self, path: str) -> bytes:
            if path.startswith(f"{ROUTE}/{folder}/0009"):
                if damage == "missing":
                    raise BadData(f"file {path}: no such file")
                return super().read(path)[:40]
            return super().read(path)

    preparation, tree = LeadPreparation(), Damaged(shared_dir() / "golden/lead_data/carla_leaderboard2")
    with pytest.raises(BadData, match=rf"^file {ROUTE}/{folder}/0009"):
        preparation.record(tree, preparation.config_keys({}), SampleKey(ROUTE, 9))


def test_the_demo_preset_gets_small_pictures_and_grids(demo: CacheReader) -> None:
    config = load_config({"use_planning_decoder": True}, "demo")
    samples = LeadSamples(config, demo)
    (sample,) = rows_of(on_device(collate([samples.load(0, 0)]), config))
    shapes = {key: value.shape for key, value in sample.items() if isinstance(value, np.ndarray)}
    assert shapes["rgb"] == (3, 96, 288)
    assert shapes["semantic"] == shapes["depth"] == (96, 288)
    assert shapes["rasterized_lidar"] == (1, 160, 192)
    assert shapes["bev_semantic"] == shapes["hdmap"] == (160, 192)
    assert shapes["center_net_heatmap"] == (8, config.bev_grid_height, config.bev_grid_width)
    assert sample["rasterized_lidar"].max() <= 1.0 and set(np.unique(sample["bev_semantic"])) <= set(range(13))


@pytest.mark.parametrize("step", [0, 1, 3])
@pytest.mark.parametrize("kind, world, threads", [(Loader, 1, 3), (Loader, 2, 2), (ProcessLoader, 1, 2)])
def test_augmented_batches_depend_on_no_thread_world_or_loader_and_go_on_from_any_step(
    demo: CacheReader, kind: type[Loader], world: int, threads: int, step: int
) -> None:
    samples = LeadSamples(load_config({"use_planning_decoder": True, "use_color_aug_prob": 1.0}, "demo"), demo)

    def steps(loader: type[Loader], start: int, **options: int) -> list[list[str]]:
        made = loader(samples, collate, batch_size=2, seed=0, **options)
        return [[digest_of_row(row) for row in rows_of(batch)] for batch in made.batches(1, start)]

    ranks = [steps(kind, step, rank=rank, world_size=world, threads=threads) for rank in range(world)]
    together = [[row for rows in zip(*shares, strict=True) for row in rows] for shares in zip(*ranks, strict=True)]
    assert together == steps(Loader, 0)[step:] and len(together) == 4 - step


def digest_of_row(row: Mapping[str, Any]) -> str:
    hashed = hashlib.sha256()
    for name, value in sorted(row.items()):
        hashed.update(name.encode() + (value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()))
    return hashed.hexdigest()


def test_the_view_and_the_colours_change_from_epoch_to_epoch(demo: CacheReader) -> None:
    samples = LeadSamples(load_config({"use_color_aug_prob": 1.0}, "demo"), demo)
    views = [[samples.load(index, epoch)["perturbate_sensor"] for index in range(8)] for epoch in range(3)]
    assert len({tuple(view) for view in views}) == 3 and len({view for run in views for view in run}) == 2
    pictures = [np.asarray(samples.load(0, epoch)["rgb"]).tobytes() for epoch in (0, 0, 1)]
    assert pictures[0] == pictures[1] != pictures[2]


def test_a_run_with_other_sizes_than_the_cache_is_refused_by_key(demo: CacheReader) -> None:
    with pytest.raises(BadConfig, match="image_height: found 384, the cache has 96"):
        LeadSamples(load_config({}), demo)


def test_a_collection_the_cache_lacks_is_named(demo: CacheReader) -> None:
    with pytest.raises(BadConfig, match=r"town13_heldout_pretrain.*full_posttrain, full_pretrain"):
        LeadSamples(load_config({"hold_out_town13_routes": True}, "demo"), demo)


def test_padding_rows_leave_no_peak_unless_compat_asks_for_it(demo: CacheReader) -> None:
    def corner(compat: str) -> float:
        sample = LeadSamples(load_config({"compat": compat}, "demo"), demo).load(0, 0)
        return float(sample["center_net_heatmap"][0, 0, 0])

    assert corner("lead") == 1.0 and corner("fixed") < 1.0
