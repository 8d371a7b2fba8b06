"""What is to be known of initial weights is said where they are used: not on resume, nor of random ones by intent."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from lead_protocol.exit_codes import ExitCode
from lead_testing.toy_recipe import ToyRecipe
from lead_testing.toy_runs import toy_recipe_installed
from lead_trainer.cli import main
from lead_trainer.recipes.lead.recipe import RECIPE


def test_a_warning_at_the_beginning_is_silent_on_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def warnings(self: ToyRecipe, config: object) -> Sequence[str]:
        return ["weights are random"]

    monkeypatch.chdir(tmp_path)
    with toy_recipe_installed(tmp_path):
        monkeypatch.setattr(ToyRecipe, "warnings", warnings, raising=False)
        for more, count in (([], 1), ([], 0), (["resume=never"], 1)):
            assert main(["train", "recipe=toy", "logdir=run", "epochs=1", *more]) == ExitCode.DONE
            assert capfd.readouterr().err.count("weights are random") == count


def test_random_weights_of_the_demos_networks_are_no_surprise() -> None:
    assert RECIPE.warnings(RECIPE.config({}, "demo")) == [] == RECIPE.warnings(RECIPE.config({}, "demo"))
    assert len(RECIPE.warnings(RECIPE.config({"image_architecture": "resnet34"}, "demo"))) == 1
    rules = {rule.name: rule for rule in RECIPE.watch_rules(RECIPE.config({}, "demo"))}
    assert rules["random-backbone"].check([{}]) is None
