"""Facts of the data reach the model in one form: when they are computed, on every rank, and after a restart."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lead_protocol.exit_codes import ExitCode
from lead_protocol.store.folder import FolderStore
from lead_testing import toy_recipe
from lead_testing.toy_jobs import a_toy_job
from lead_testing.toy_runs import toy_recipe_with, train_here
from lead_trainer.contract.recipe import Recipe, no_facts
from lead_trainer.engine.attempt.config_check import check_model
from lead_trainer.errors import BadConfig


def test_facts_are_computed_once_and_are_the_same_after_a_restart(tmp_path: Path) -> None:
    seen: list[Any] = []
    computed: list[int] = []

    def facts(config: Any, caches: Any) -> dict[str, Any]:
        computed.append(len(computed))
        return {"mean": (0.1, 2.0), "by_class": {3: 4}, "call": len(computed)}

    def model(config: Any, facts: Any) -> torch.nn.Module:
        seen.append(dict(facts))
        return toy_recipe.model(config, facts)

    def step(model: torch.nn.Module, batch: Any, context: Any) -> Any:
        assert context.facts == seen[-1]
        return toy_recipe.step(model, batch, context)

    store = FolderStore(tmp_path / "store")
    with toy_recipe_with(facts=facts, model=model, step=step):
        assert train_here(store, tmp_path, a_toy_job(epochs=1), stop_in_call=3) == ExitCode.STOPPED
        assert train_here(store, tmp_path, a_toy_job(2, epochs=1)) == ExitCode.DONE
    assert seen == [{"mean": [0.1, 2.0], "by_class": {"3": 4}, "call": 1}] * 2
    assert len(computed) == 1


@pytest.mark.parametrize("wrong", [{"mean": torch.zeros(2)}, {"mean": float("nan")}, {"mean": {1, 2}}])
def test_facts_that_no_checkpoint_can_hold_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with (
        toy_recipe_with(facts=lambda config, caches: wrong),
        pytest.raises(BadConfig, match="recipe toy: its facts are"),
    ):
        train_here(FolderStore(tmp_path / "store"), tmp_path, a_toy_job(epochs=1))


def test_a_schedule_names_the_parameter_group_that_it_forgets(tmp_path: Path) -> None:
    for factor, told in (
        ({"head": 1.0}, "a parameter group has no name"),
        ({"": 1.0, "neck": 1.0}, "factor of 'neck'"),
    ):
        recipe: Recipe[Any] = toy_recipe.RECIPE
        assert recipe.name == "toy"
        with toy_recipe_with(lr_factor=lambda config, at, factor=factor: factor), pytest.raises(BadConfig, match=told):
            train_here(FolderStore(tmp_path / told[:4].strip()), tmp_path / "out", a_toy_job(epochs=1))


class Classes(torch.nn.Module):
    """One output a class of the data."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = torch.nn.Linear(toy_recipe.FEATURES, count)

    def forward(self, x_BF: torch.Tensor) -> torch.Tensor:
        return torch.Tensor(self.layers(x_BF).mean(1))


def test_weights_whose_size_follows_from_the_data_begin_another_stage(tmp_path: Path) -> None:
    """The check before a cache is built knows no facts, only what stands in their place."""
    recipe = replace(
        toy_recipe.RECIPE,
        facts=lambda config, caches: {"classes": 5},
        facts_without_data=lambda config: {"classes": 2},
        model=lambda config, facts: Classes(facts["classes"]),
    )
    weights = tmp_path / "model.pth"
    torch.save(Classes(5).state_dict(), weights)
    check_model(recipe, toy_recipe.ToyConfig(), weights)
    torch.save(torch.nn.Linear(2, 2).state_dict(), weights)
    with pytest.raises(BadConfig, match="load_file: its weights are of another model"):
        check_model(recipe, toy_recipe.ToyConfig(), weights)
    with pytest.raises(BadConfig, match="size mismatch"):
        torch.save(Classes(4).state_dict(), weights)
        check_model(replace(recipe, facts=no_facts), toy_recipe.ToyConfig(), weights)
