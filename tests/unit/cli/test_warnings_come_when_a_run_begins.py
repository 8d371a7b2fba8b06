"""What is to be known of initial weights is said where they are used: not on resume, nor of random ones by intent."""

from pathlib import Path
from typing import Any

import pytest

from lead_protocol.exit_codes import ExitCode
from lead_testing.toy_runs import toy_recipe_installed, toy_recipe_with
from lead_trainer.cli import main
from lead_trainer.contract.reports import Reports
from lead_trainer.recipes.lead.recipe import RECIPE


def test_a_warning_at_the_beginning_is_silent_on_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    warns = Reports[Any](warnings=lambda config: ["weights are random"])
    monkeypatch.chdir(tmp_path)
    with toy_recipe_installed(tmp_path), toy_recipe_with(reports=warns):
        for more, count in (([], 1), ([], 0), (["resume=never"], 1)):
            assert main(["train", "recipe=toy", "logdir=run", "epochs=1", *more]) == ExitCode.DONE
            assert capfd.readouterr().err.count("weights are random") == count


def test_random_weights_of_the_demos_networks_are_no_surprise() -> None:
    assert (
        RECIPE.reports.warnings(RECIPE.config({}, "demo")) == [] == RECIPE.reports.warnings(RECIPE.config({}, "demo"))
    )
    assert len(RECIPE.reports.warnings(RECIPE.config({"image_architecture": "resnet34"}, "demo"))) == 1
    rules = {rule.name: rule for rule in RECIPE.reports.watch_rules(RECIPE.config({}, "demo"))}
    assert rules["random-backbone"].check([{}]) is None
