"""Trees without depth or semantics serve runs whose head for them is off; other runs are told which key helps."""

from collections.abc import Sequence
from typing import Any

import pytest

from lead_testing import shared_dir
from lead_testing.logged import Logged
from lead_testing.on_demand_cache import OnDemandCache
from lead_trainer.contract.raw_data import SampleKey, SourceFile
from lead_trainer.data.array_block import unpack_arrays
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.dataset import DEPTH_CODES, LeadSamples
from lead_trainer.recipes.lead.preparation import LeadPreparation

ROUTE = "data/SignalizedJunctionLeftTurn/999_Rep-1_Town03_301_route0_11_04_01_11_59"
ROOT = "golden/lead_data/carla_leaderboard2"
PREPARATION = LeadPreparation()
LABELS = [("use_depth", "depth", "depth"), ("use_semantic", "semantics", "semantic")]  # key, folders, plane


class Without(FolderTree):
    """The recorded tree as an expert without one label would have left it."""

    def __init__(self, folder: str) -> None:
        super().__init__(shared_dir() / ROOT)
        self._lacking = (f"/{folder}/", f"/{folder}_perturbated/")

    def files(self) -> Sequence[SourceFile]:
        return [file for file in super().files() if not any(part in file.path for part in self._lacking)]

    def read(self, path: str) -> bytes:
        assert not any(part in path for part in self._lacking)
        return super().read(path)


def reasons(tree: FolderTree, config: dict[str, Any]) -> set[str]:
    scan = PREPARATION.scan(tree, PREPARATION.config_keys(config), ["full_pretrain"])
    return {verdict.reason for verdict in scan.verdicts if verdict.kept or verdict.reason == "missing_files"}


@pytest.mark.parametrize(("key", "folder", "plane"), LABELS)
def test_a_tree_without_a_label_is_used_where_its_head_is_off(key: str, folder: str, plane: str) -> None:
    tree = Without(folder)
    assert reasons(tree, {key: False}) == {"kept"}
    record = PREPARATION.record(tree, PREPARATION.config_keys({key: False}), SampleKey(ROUTE, 9))
    planes = unpack_arrays(memoryview(record["normal/planes"]), compressed=True)
    assert {"semantic", "depth", "map", "occupancy", "lidar"} - set(planes) == {plane}


@pytest.mark.parametrize(("key", "folder", "plane"), LABELS)
def test_where_the_head_is_on_the_message_names_the_key(key: str, folder: str, plane: str, logged: Logged) -> None:
    assert reasons(Without(folder), {}) == {"missing_files"}
    assert f"/{folder}/0001.png is missing; restore it to train on the route, or set {key} to false" in str(logged)


@pytest.mark.parametrize(("key", "folder", "plane"), LABELS)
def test_one_cache_serves_runs_with_and_without_the_head_if_it_has_the_label(key: str, folder: str, plane: str) -> None:
    root, off = shared_dir() / ROOT, load_config({key: False})
    caches = [OnDemandCache(root, {key: value}, ["full_pretrain"]) for value in (True, False)]
    for cache in caches:
        sample = LeadSamples(off, cache).sample(0, perturbed=True)
        assert not [name for name in sample if name in (plane, DEPTH_CODES) and plane in name]
    with pytest.raises(BadConfig, match=f"{key}: found True, the cache has False: build a cache with the run's values"):
        LeadSamples(load_config({}), caches[1])
