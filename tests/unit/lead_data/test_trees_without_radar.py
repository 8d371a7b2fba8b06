"""Runs that use no radar need none; other numbers of radars and other windows fit, or are refused by name."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from lead_testing import shared_dir
from lead_testing.on_demand_cache import OnDemandCache
from lead_trainer.contract.raw_data import SampleKey, SourceFile
from lead_trainer.data.array_block import unpack_arrays
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.dataset import LeadSamples
from lead_trainer.recipes.lead.preparation import LeadPreparation

ROUTE = "data/SignalizedJunctionLeftTurn/999_Rep-1_Town03_301_route0_11_04_01_11_59"
PREPARATION = LeadPreparation()


class WithoutRadar(FolderTree):
    """The recorded tree as a car without radar would have left it."""

    def files(self) -> Sequence[SourceFile]:
        return [file for file in super().files() if "/radar" not in file.path]

    def read(self, path: str) -> bytes:
        assert "/radar" not in path
        return super().read(path)


@cache
def tree(kind: type[FolderTree] = FolderTree) -> FolderTree:
    return kind(shared_dir() / "golden/lead_data/carla_leaderboard2")


def kept(config: dict[str, Any]) -> set[str]:
    scan = PREPARATION.scan(tree(WithoutRadar), PREPARATION.config_keys(config), ["full_pretrain"])
    return {verdict.reason for verdict in scan.verdicts if verdict.kept or verdict.reason == "missing_files"}


def test_a_tree_without_radar_is_trained_on_where_no_radar_is_used() -> None:
    assert kept({"use_radars": False}) == {"kept"}
    assert "missing_files" in kept({})
    keys = PREPARATION.config_keys({"use_radars": False})
    record = PREPARATION.record(tree(WithoutRadar), keys, SampleKey(ROUTE, 9))
    arrays = unpack_arrays(memoryview(record["normal/arrays"]), compressed=False)
    assert set(arrays) == {"boxes", "radar_detections"}


def test_one_cache_serves_runs_with_and_without_radar_if_it_has_radar() -> None:
    root = shared_dir() / "golden/lead_data/carla_leaderboard2"
    with_radar, without = (OnDemandCache(root, {"use_radars": used}, ["full_pretrain"]) for used in (True, False))
    for one in (with_radar, without):
        sample = LeadSamples(load_config({"use_radars": False}), one).sample(0, perturbed=False)
        assert not [key for key in sample if key.startswith("radar")]
    with pytest.raises(BadConfig, match="num_radar_sensors: found 4, the cache has 0"):
        LeadSamples(load_config({}), without)


def test_fewer_radars_than_recorded_are_read() -> None:
    root = shared_dir() / "golden/lead_data/carla_leaderboard2"
    values = {"num_radar_sensors": 2, "num_radar_points_per_sensor": 30, "num_radar_queries": 7}
    cache_of_two = OnDemandCache(root, values, ["full_pretrain"])
    sample = LeadSamples(load_config(values), cache_of_two).sample(0, perturbed=True)
    assert sample["radar"].shape == (60, 5) and set(np.unique(sample["radar"][:, 4])) == {0, 1}
    assert sample["radar_detections"].shape == (7, 4)


def test_more_radars_than_recorded_are_named() -> None:
    keys = PREPARATION.config_keys({"num_radar_sensors": 5})
    with pytest.raises(BadData, match=r"radar/0009\.npz is not a valid npz file of 5 radars"):
        PREPARATION.record(tree(), keys, SampleKey(ROUTE, 9))


@pytest.mark.parametrize("window", [{"min_x_meter": -96}, {"max_x_meter": 96}, {"max_y_meter": 72, "min_y_meter": -56}])
def test_a_window_larger_than_the_recorded_map_is_refused(window: dict[str, int]) -> None:
    keys = PREPARATION.config_keys(window)
    with pytest.raises(BadConfig, match="reaches beyond the recorded map, which ends 64 m from the car"):
        PREPARATION.record(tree(), keys, SampleKey(ROUTE, 9))


def test_a_frame_without_boxes_has_no_targets_and_is_divided_by_one() -> None:
    root = shared_dir() / "golden/lead_data/carla_leaderboard2"
    samples = LeadSamples(load_config({}), OnDemandCache(root, {}, ["full_pretrain"]))
    names = [samples.name(index) for index in range(len(samples))]
    empty = next(index for index, name in enumerate(names) if "204" in name)
    sample = samples.sample(empty, perturbed=False)
    assert not sample["center_net_heatmap"].any() and not sample["center_net_pixel_weight"].any()
    assert sample["center_net_avg_factor"] == 1
    assert not sample["radar_detections"].any()
