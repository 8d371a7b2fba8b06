"""What a machine or a place cannot do is refused before training, by the name of the key."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lead_testing.toy_jobs import a_toy_job
from lead_trainer.engine.config_document import config_document
from lead_trainer.engine.ddp import Group
from lead_trainer.engine.worker import refuse_local_keys
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.recipe import load_recipe
from lead_trainer.world import World


def test_shared_batch_norms_are_refused_off_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(World(), torch.device("cpu"))
    group.close()
    monkeypatch.setattr(group, "_decisions", object())  # as if there were other ranks
    with pytest.raises(BadConfig, match="sync_batchnorm: found true"):
        group.wrap(torch.nn.BatchNorm1d(2), sync_batchnorm=True, repeatable=True)


@pytest.mark.parametrize("key", ["root", "load_file", "logdir"])
def test_a_local_key_in_a_pods_job_is_refused(key: str) -> None:
    recipe: Any = SimpleNamespace(not_learned=frozenset(), local_keys={"root": "the stage's datasets"})
    refuse_local_keys(a_toy_job(config={"batch_size": 4, key: ""}), recipe)
    with pytest.raises(BadConfig, match=f"{key}: found 'x'"):
        refuse_local_keys(a_toy_job(config={key: "x"}), recipe)


@pytest.mark.parametrize(("name", "of_the_run"), [("lead", {}), ("distill", {"model": "baseline"})])
def test_every_key_that_a_recipe_sets_apart_is_one_of_its_own(name: str, of_the_run: dict[str, str]) -> None:
    recipe: Any = load_recipe(name)
    known = config_document(recipe, recipe.config(of_the_run))
    assert sorted({*recipe.not_learned, *recipe.local_keys} - known.keys()) == []
    roots = {key for key in recipe.config_model.model_fields if key.endswith("_root")}
    assert roots <= recipe.local_keys.keys()
    assert recipe.local_keys.keys() <= recipe.not_learned
