"""Every config key changed once: the cache's digest changes exactly when the bytes of the cache do.

Keys outside the digest cannot change them, because the preparation is handed nothing else. That the same keys give the
same bytes in another release of the code is `test_other_bytes_have_another_version`'s.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

import pytest

from lead_protocol.cache_digest import cache_digest, canonical_json
from lead_testing.label_tree import FRAMES, ROUTE, SIZES, label_tree
from lead_trainer.contract.raw_data import SampleKey
from lead_trainer.data.cache_tables import write_table
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.preparation import LeadPreparation
from lead_trainer.recipes.lead.prepare_keys import PreparationKeys

FRAME = FRAMES // 2
STAGES = ["full_pretrain", "full_posttrain"]
READ = {field.name for field in fields(PreparationKeys)}
NEVER = ("logdir", "seed", "num_threads", "lr", "batch_size", "epochs", "wandb_project_name", "use_color_aug", "compat",
         "prefetch_factor", "load_file", "description", "id", "precision", "use_planning_decoder")  # fmt: skip
ANOTHER: dict[str, Any] = {
    "compat": "lead", "logdir": "elsewhere", "load_file": "x.pth", "description": "y", "id": "z", "precision": "fp32",
    "wandb_project_name": "p",
}  # fmt: skip


@cache
def base() -> Mapping[str, Any]:
    return LeadPreparation().config_keys(SIZES)


def digest(keys: Mapping[str, Any], version: str = "v") -> str:
    return cache_digest(source_sha256="0" * 64, collections=STAGES, keys=keys, recipe="lead", version=version)


@pytest.mark.parametrize("key", NEVER)
def test_a_key_of_the_run_alone_never_changes_the_digest(key: str) -> None:
    default = LeadConfig.model_fields[key].default
    counted = not default if isinstance(default, bool) else default
    other = ANOTHER[key] if key in ANOTHER else counted if isinstance(default, bool) else counted + 1
    assert key not in READ and other != default
    assert digest(LeadPreparation().config_keys({**SIZES, key: other})) == digest(base())


def outputs(keys: Mapping[str, Any]) -> str:
    """Returns a hash of what a cache would hold of one frame, and of which samples it would hold."""
    preparation, tree, found = LeadPreparation(), label_tree(), hashlib.sha256()
    scan = preparation.scan(tree, keys, STAGES)
    for collection in scan.collections:
        for bucket in collection.buckets:
            found.update(canonical_json([scan.samples[n].frame for n in bucket.samples]))
    for name, data in sorted(preparation.record(tree, keys, SampleKey(ROUTE, FRAME)).items()):
        found.update(name.encode() + data)
    found.update(write_table(preparation.route_metas(tree, keys, ROUTE, [FRAME])))
    return found.hexdigest()


CHANGES: dict[str, Any] = {
    "carla_leaderboard_mode": False, "image_height": 80, "image_width": 144, "pixels_per_meter": 2.0,
    "min_x_meter": -16, "max_x_meter": 48, "min_y_meter": -24, "max_y_meter": 24, "training_used_lidar_steps": 1,
    "hist_max_per_pixel": 1, "min_height_lidar": 1.0, "max_height_lidar": 1.0, "num_radar_sensors": 2,
    "num_radar_queries": 3, "use_sensor_perburtation": False, "use_semantic": False, "use_depth": False,
    "use_bev_semantic": False, "max_num_bbs": 4, "min_z": -2.0, "max_z": 2.0, "vehicle_min_num_lidar_points": 5,
    "vehicle_min_num_visible_pixels": 5, "pedestrian_min_num_lidar_points": 20, "pedestrian_min_num_visible_pixels": 50,
    "parking_vehicle_min_num_lidar_points": 6, "parking_vehicle_min_num_visible_pixels": 10,
    "data_bb_static_types_white_list": [], "car_open_door_extra_width": 3.0, "scale_pedestrian_bev_semantic_size": 4.0,
    "pedestrian_bev_min_extent": 0.8, "skip_first_pretrain": 3, "skip_last_pretrain": 3, "skip_first_posttrain": 5,
    "skip_last_posttrain": 5, "tp_pop_distance": 5.0,
}  # fmt: skip


@pytest.mark.parametrize("key", sorted(READ))
def test_a_key_that_is_read_changes_digest_and_bytes_together(key: str) -> None:
    keys = {**base(), key: CHANGES[key]}
    assert keys[key] != base()[key]
    assert digest(keys) != digest(base())
    assert outputs(keys) != outputs(base())


def test_the_same_values_give_the_same_bytes() -> None:
    assert outputs(dict(base())) == outputs(base())
