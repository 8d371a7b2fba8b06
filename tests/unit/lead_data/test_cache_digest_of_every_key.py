"""Every config key changed once: the cache's digest changes exactly when the bytes of the cache do.

Keys outside the digest cannot change them, because the preparation is handed nothing else.
"""

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lead_testing import shared_dir
from lead_trainer.data.cache_tables import write_table
from lead_trainer.data.digest import cache_digest, canonical_json
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.preparation import LeadPreparation
from lead_trainer.recipes.lead.prepare_keys import PreparationKeys
from lead_trainer.recipes.recipe import SampleKey

ROUTE = "data/SignalizedJunctionLeftTurn/999_Rep-1_Town03_301_route0_11_04_01_11_59"
FRAMES = (8, 9)
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
    return LeadPreparation().config_keys({})


def digest(keys: Mapping[str, Any]) -> str:
    return cache_digest(source_sha256="0" * 64, collections=STAGES, keys=keys, recipe="lead", version="v")


@pytest.mark.parametrize("key", NEVER)
def test_a_key_of_the_run_alone_never_changes_the_digest(key: str) -> None:
    default = LeadConfig.model_fields[key].default
    counted = not default if isinstance(default, bool) else default
    other = ANOTHER[key] if key in ANOTHER else counted if isinstance(default, bool) else counted + 1
    assert key not in READ and other != default
    assert digest(LeadPreparation().config_keys({key: other})) == digest(base())


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> FolderTree:
    root = tmp_path_factory.mktemp("tree")
    shutil.copytree(shared_dir() / "golden/lead_data/carla_leaderboard2" / ROUTE, root / ROUTE)
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return FolderTree(Path(root))


def outputs(tree: FolderTree, keys: Mapping[str, Any]) -> str:
    """Returns a hash of what a cache would hold of two frames, and of which samples it would hold."""
    preparation, found = LeadPreparation(), hashlib.sha256()
    scan = preparation.scan(tree, keys, STAGES)
    for collection in scan.collections:
        for bucket in collection.buckets:
            found.update(canonical_json([scan.samples[n].frame for n in bucket.samples]))
    for frame in FRAMES:
        for name, data in sorted(preparation.record(tree, keys, SampleKey(ROUTE, frame)).items()):
            found.update(name.encode() + data)
    found.update(write_table(preparation.route_metas(tree, keys, ROUTE, list(FRAMES))))
    return found.hexdigest()


@pytest.fixture(scope="module")
def unchanged(tree: FolderTree) -> str:
    return outputs(tree, base())


CHANGES: dict[str, Any] = {
    "pixels_per_meter": 2.0, "min_x_meter": -16, "max_x_meter": 48, "min_y_meter": -24, "max_y_meter": 24,
    "training_used_lidar_steps": 1, "hist_max_per_pixel": 1, "min_height_lidar": 1.0, "max_height_lidar": 1.0,
    "skip_first_pretrain": 3, "skip_last_pretrain": 3, "skip_first_posttrain": 5,
}  # fmt: skip


@pytest.mark.parametrize("key", sorted(CHANGES))
def test_a_key_that_is_read_changes_digest_and_bytes_together(key: str, tree: FolderTree, unchanged: str) -> None:
    keys = {**base(), key: CHANGES[key]}
    assert key in READ and keys[key] != base()[key]
    assert digest(keys) != digest(base())
    assert outputs(tree, keys) != unchanged


def test_the_same_values_give_the_same_bytes(tree: FolderTree, unchanged: str) -> None:
    assert outputs(tree, dict(base())) == unchanged
