"""A checkpoint is resumed with the config it was written with; a key that its trainer did not know is no change."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from lead_protocol.manifests import CheckpointManifest
from lead_protocol.store.folder import FolderStore
from lead_testing import toy_recipe
from lead_testing.toy_jobs import KEYS, a_toy_job, manifests
from lead_testing.toy_runs import train_here
from lead_trainer.contract.keys import Keys
from lead_trainer.contract.recipe import Recipe
from lead_trainer.engine.checkpoints.checkpoint import CheckpointIdentity
from lead_trainer.engine.checkpoints.instances import instance_manifests
from lead_trainer.engine.checkpoints.manifest_listing import manifest_keys
from lead_trainer.engine.checkpoints.resume import config_digest, refuse_other_run
from lead_trainer.errors import BadConfig


class Compat(BaseModel):
    model_config = ConfigDict(extra="forbid")

    bf16_labels: bool = True


class WithSection(toy_recipe.ToyConfig):
    logdir: str = ""
    compat: Compat = Compat()


FREE = {"logdir"}
RECIPE = replace(toy_recipe.RECIPE, config_model=WithSection, keys=Keys(not_learned=frozenset(FREE)))
BEFORE: dict[str, Any] = {"lr": 0.1, "compat": {"bf16_labels": True}, "logdir": "here"}


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> CheckpointManifest:
    folder = tmp_path_factory.mktemp("run")
    train_here(FolderStore(folder / "store"), folder, a_toy_job(epochs=1))
    last = manifests(FolderStore(folder / "store"))[-1]
    return last.model_copy(update={"config_sha256": config_digest(BEFORE, FREE)})


def test_a_local_view_passes_over_newer_keys_and_spoiled_manifests(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    train_here(store, tmp_path, a_toy_job(epochs=2))
    newest, oldest = manifest_keys(store, KEYS.manifests_prefix)
    store.put(newest, json.dumps({**json.loads(store.get(newest, max_bytes=10**6)), "newer": 1}).encode())
    store.put(oldest, b"no manifest")
    assert [manifest.epoch for manifest in instance_manifests(store, KEYS)] == [2]


def resume(manifest: CheckpointManifest, folder: Path, now: dict[str, Any], recipe: Recipe[Any] = RECIPE) -> None:
    (folder / "config.json").write_text(json.dumps(BEFORE))
    identity = CheckpointIdentity(
        KEYS, 2, manifest.recipe, config_digest(now, FREE), tuple(manifest.dataset_digests), manifest.world_size
    )
    refuse_other_run(manifest, identity, folder, now, recipe)


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ({**BEFORE, "lr": 0.2}, "lr was 0.1 and is 0.2"),
        ({**BEFORE, "compat": {"bf16_labels": False}}, "compat.bf16_labels was True and is False"),
        ({**BEFORE, "compat": None, "new": 1}, "compat was .* and is None"),
    ],
)
def test_a_changed_key_is_refused_by_its_name(
    manifest: CheckpointManifest, tmp_path: Path, now: dict[str, Any], told: str
) -> None:
    with pytest.raises(BadConfig, match=f"another config: {told}; restore the old value"):
        resume(manifest, tmp_path, now)


def test_where_files_lie_may_change_and_so_may_the_trainers_version(
    manifest: CheckpointManifest, tmp_path: Path
) -> None:
    resume(manifest, tmp_path, {**BEFORE, "logdir": "there"})
    resume(manifest, tmp_path, {**BEFORE, "new": 1, "compat": {"bf16_labels": True, "newer": False}})
    resume(manifest, tmp_path, {"lr": 0.1, "compat": {}})


def test_a_free_key_in_a_section_is_named_by_its_path(manifest: CheckpointManifest, tmp_path: Path) -> None:
    free = replace(RECIPE, keys=Keys(not_learned=frozenset({"compat.bf16_labels", "logdir"})))
    resume(manifest, tmp_path, {**BEFORE, "compat": {"bf16_labels": False}}, free)
    with pytest.raises(BadConfig, match=r"another config: lr was 0\.1 and is 0\.2;"):
        resume(manifest, tmp_path, {**BEFORE, "lr": 0.2, "compat": {"bf16_labels": False}}, free)
