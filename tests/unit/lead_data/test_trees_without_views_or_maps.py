"""Trees without the perturbated view or the map serve runs that read neither; other runs are told which key helps."""

from collections.abc import Sequence

import numpy as np
import pytest

from lead_testing import shared_dir
from lead_testing.logged import Logged
from lead_testing.on_demand_cache import OnDemandCache
from lead_trainer.contract.raw_data import SampleKey, SourceFile
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.dataset import LeadSamples
from lead_trainer.recipes.lead.preparation import LeadPreparation

ROOT = shared_dir() / "golden/lead_data/carla_leaderboard2"
ROUTE = "data/SignalizedJunctionLeftTurn/999_Rep-1_Town03_301_route0_11_04_01_11_59"
PREPARATION = LeadPreparation()
CASES = [("use_sensor_perburtation", "_perturbated/", "rgb_perturbated"), ("use_bev_semantic", "/hdmap", "hdmap")]


class Without(FolderTree):
    """The recorded tree without the files that have a text in their path."""

    def __init__(self, text: str) -> None:
        super().__init__(ROOT)
        self._text = text

    def files(self) -> Sequence[SourceFile]:
        return [file for file in super().files() if self._text not in file.path]

    def read(self, path: str) -> bytes:
        assert self._text not in path
        return super().read(path)


@pytest.mark.parametrize(("key", "text", "folder"), CASES)
def test_the_tree_is_used_where_nothing_reads_them(key: str, text: str, folder: str, logged: Logged) -> None:
    tree, off = Without(text), PREPARATION.config_keys({key: False})
    assert len(PREPARATION.scan(tree, off, ["full_pretrain"]).samples) == len(
        PREPARATION.scan(FolderTree(ROOT), off, ["full_pretrain"]).samples
    )
    assert PREPARATION.record(tree, off, SampleKey(ROUTE, 9))
    assert not PREPARATION.scan(tree, PREPARATION.config_keys({}), ["full_pretrain"]).samples
    assert f"/{folder}/0001" in str(logged) and f"or set {key} to false" in str(logged)


@pytest.mark.parametrize(("key", "text", "folder"), CASES)
def test_a_cache_with_them_serves_runs_without_and_not_the_other_way_round(key: str, text: str, folder: str) -> None:
    caches = [OnDemandCache(ROOT, {key: value}, ["full_pretrain"]) for value in (True, False)]
    samples = [LeadSamples(load_config({key: False, "use_color_aug": False}), cache).load(0, 0) for cache in caches]
    assert samples[0].keys() == samples[1].keys() and np.array_equal(samples[0]["rgb"], samples[1]["rgb"])
    with pytest.raises(BadConfig, match=f"{key}: found True, the cache has False: build a cache with the run's values"):
        LeadSamples(load_config({}), caches[1])
