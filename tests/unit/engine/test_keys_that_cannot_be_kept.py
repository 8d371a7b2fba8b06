"""What a machine or a place cannot do is refused before training, by the name of the key."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from lead_protocol.job import BuildJob, StoreSource
from lead_testing import toy_recipe
from lead_testing.toy_jobs import a_toy_job
from lead_trainer.contract.installed import load_recipe
from lead_trainer.contract.keys import Keys
from lead_trainer.contract.training_keys import key_name
from lead_trainer.engine.attempt.pod_config import refuse_places
from lead_trainer.engine.checkpoints.resume import RUN_KEYS, not_learned
from lead_trainer.engine.group.ddp import Group
from lead_trainer.errors import BadConfig
from lead_trainer.world import World


def test_shared_batch_norms_are_refused_off_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(World(), torch.device("cpu"))
    group.close()
    monkeypatch.setattr(group, "_decisions", object())  # as if there were other ranks
    with pytest.raises(BadConfig, match="sync_batchnorm: found true"):
        group.wrap(torch.nn.BatchNorm1d(2), sync_batchnorm=True, repeatable=True)


class WithRoot(toy_recipe.ToyConfig):
    root: str = ""


@pytest.mark.parametrize("key", ["root", "load_file", "logdir"])
def test_a_local_key_in_a_pods_job_is_refused(key: str) -> None:
    recipe = replace(toy_recipe.RECIPE, config_model=WithRoot, keys=Keys(local={"root": "the stage's datasets"}))
    refuse_places(a_toy_job(config={"batch_size": 4, key: ""}), recipe)
    with pytest.raises(BadConfig, match=f"{key}: found 'x'"):
        refuse_places(a_toy_job(config={key: "x"}), recipe)


PLACES = (
    "/etc/lead/s3/secret-key", "~/key", "../key", "a/../../key", "file:///etc/passwd", "https://example.com/a",
    "s3://bucket/key", "store:runs/other/1/config.json",
)  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("recipe", ["lead", "distill"])
def test_no_key_of_a_pods_config_names_a_place(recipe: str, place: str) -> None:
    """Every key of text, and texts in lists and mappings; neither a file of the pod nor an address nor an object.

    Audit: S-3
    """
    found: Any = load_recipe(recipe)
    fields = found.config_model.model_fields.items()
    texts = [key_name(found.config_model, key) for key, field in fields if "str" in str(field.annotation)]
    assert len(texts) > 5
    for key in texts:
        for value in (place, [place], {"a": {"b": [place]}}):
            with pytest.raises(BadConfig, match=f"^{key}"):
                refuse_places(a_toy_job(config={key: value}), found)
            with pytest.raises(BadConfig, match=f"^{key}"):
                refuse_places(a_build_job({key: value}), found)


@pytest.mark.parametrize("name", ["lead", "distill"])
def test_weights_of_a_pods_config_are_those_of_the_folder_of_weights(name: str) -> None:
    """Audit: S-3"""
    recipe: Any = load_recipe(name)
    for value in ("store:weights/a.safetensors", "store:weights/team/a.pth", "", None):
        refuse_places(a_toy_job(config={"backbone_weights": value}), recipe)
    for value in (*PLACES, "resnet34.pth", "store:weights/../runs/a", "store:weight", ["store:weights/a"]):
        with pytest.raises(BadConfig, match=r"^backbone_weights: found .*expected store:weights/"):
            refuse_places(a_toy_job(config={"backbone_weights": value}), recipe)


def a_build_job(config: dict[str, Any]) -> BuildJob:
    return BuildJob(
        owner=a_toy_job().owner, generation=1, attempt=1, index=0, parallelism=1, recipe="lead",
        source=StoreSource(prefix="datasets/x"), collections=[], config=config,
    )  # fmt: skip


@pytest.mark.parametrize(("name", "of_the_run"), [("lead", {}), ("distill", {"model": "baseline"})])
def test_every_key_that_a_recipe_sets_apart_is_one_of_its_own(name: str, of_the_run: dict[str, str]) -> None:
    recipe: Any = load_recipe(name)
    known, keys = recipe.config_document(recipe.config(of_the_run)), recipe.keys
    assert sorted({*not_learned(recipe), *keys.local} - known.keys() - RUN_KEYS) == []
    roots = {key for key in recipe.config_model.model_fields if key.endswith("_root")}
    assert roots <= keys.local.keys()
    assert keys.local.keys() <= keys.not_learned
