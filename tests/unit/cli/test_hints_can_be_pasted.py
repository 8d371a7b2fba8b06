"""The last line of `lead train` names a command that runs as it is pasted, with nothing but another logdir."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lead_trainer.commands.train import weights_line
from lead_trainer.local.run import LocalRun, local_run
from lead_trainer.recipes.lead.recipe import RECIPE


class Shown:
    """Weights in a run's folder, as a view shows them."""

    def __init__(self, run: LocalRun) -> None:
        self.path = run.logdir / "model_0001.pth"

    def weights(self) -> tuple[Path, int]:
        return self.path, 2


def hint(run: LocalRun) -> str:
    view: Any = Shown(run)
    return weights_line(run, view)


def pasted(run: LocalRun, logdir: str) -> LocalRun:
    """Returns the run that the hint's command describes, once a logdir is typed in the place of `…`."""
    line = hint(run).partition("; posttrain: ")[2].partition("; train on")[0]
    assert line.startswith("lead train ") and line.endswith(" logdir=…")
    return local_run([*shlex.split(line)[2:-1], f"logdir={logdir}"], [], {})


def trained(words: list[str]) -> LocalRun:
    """Returns a run whose folder holds what it leaves."""
    run = local_run(words, [], {})
    run.logdir.mkdir(parents=True, exist_ok=True)
    (run.logdir / "config.json").write_text(json.dumps(run.recipe.config_document(run.config)))
    (run.logdir / "model_0001.pth").touch()
    return run


def test_the_posttrain_hint_is_the_readmes_second_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = trained(["preset=demo", "carla_root=data/example", "logdir=outputs/pretrain", "epochs=2"])
    of_page = ["preset=demo", "carla_root=data/example", "logdir=outputs/posttrain", "epochs=2",
               "load_file=outputs/pretrain/model_0001.pth", "use_planning_decoder=true"]  # fmt: skip
    assert pasted(first, "outputs/posttrain").config == local_run(of_page, [], {}).config


def test_values_with_blanks_survive_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = trained(["preset=demo", "carla_root=my data", "logdir=my runs/one", "batch_size=4"])
    found = pasted(first, "two").config
    assert (found.carla_root, found.batch_size, found.load_file) == ("my data", 4, "my runs/one/model_0001.pth")


def test_the_data_sets_of_a_mix_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["use_navsim_data=true", "use_carla_data=false", "navsim_data_root=nav", "LTF=true", "logdir=one"]
    found = pasted(trained(words), "two").config
    assert [source.name for source in found.sources] == ["navsim"] and found.navsim_data_root == "nav"
    assert found.use_planning_decoder and found.epochs == 61


def test_a_default_run_has_a_short_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = "posttrain: lead train load_file=one/model_0001.pth use_planning_decoder=true logdir=…"
    assert said in hint(trained(["logdir=one"]))


def test_a_recipe_that_is_built_on_leads_names_itself() -> None:
    own = replace(RECIPE, name="own")
    assert own.reports.next_command is not None
    chosen = {"recipe": own.name, "preset": "demo"}
    command = own.reports.next_command(own.config({}, "demo"), Path("m.pth"), Path("out"), chosen)
    assert command.startswith("posttrain: lead train recipe=own preset=demo load_file=m.pth ")


def test_a_run_on_a_few_samples_says_that_its_evaluation_measures_more(tmp_path: Path) -> None:
    run = local_run(["recipe=distill", "preset=tiny", "overfit_tiny=4", f"logdir={tmp_path}"], [], {})
    assert "(on the whole split; only 4 samples were trained: overfit_tiny)" in hint(run)
    run = local_run(["recipe=distill", "preset=tiny", f"logdir={tmp_path}"], [], {})
    assert "only" not in hint(run)
