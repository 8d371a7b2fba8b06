"""`load_file` with weights of another recipe or student: what they are, and three names at most."""

import json
from pathlib import Path

import pytest
import torch

from lead_protocol.exit_codes import ExitCode
from lead_trainer.cli import main
from lead_trainer.example_worlds.distill.tree import write_example_tree
from lead_trainer.recipes.lead.recipe import RECIPE as LEAD
from lead_trainer.recipes.parameter_names import few_names, weights_fault

TINY = ["train", "recipe=distill", "preset=tiny", "data_root=clips", "epochs=1", "logdir=new"]
FOREIGN = {f"backbone.layer{number}.weight": torch.zeros(1) for number in range(200)}


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == ExitCode.BAD_CONFIG
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_example_tree(tmp_path / "clips", train=4, val=1, resolution=32, seed=0)
    torch.save(FOREIGN, tmp_path / "model_0001.pth")
    return tmp_path


def test_the_config_beside_them_tells_whose_they_are(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "config.json").write_text(json.dumps(LEAD.config_document(LEAD.config({}, "demo"))))
    said = refused([*TINY, "load_file=model_0001.pth"], capsys)
    assert "load_file: model_0001.pth is of recipe lead, not distill" in said and "recipe=lead" in said


def test_without_it_three_names_are_shown_and_the_others_counted(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "data/data").mkdir(parents=True)
    for words in (TINY, ["train", "preset=demo", "carla_root=data", "logdir=new"]):
        said = refused([*words, "load_file=model_0001.pth"], capsys)
        assert "its weights hold none of this model's" in said and said.count(".weight") == 3
        assert "and 197 more; they are of another recipe or network" in said and len(said) < 300
    assert not (here / "new").exists()


def test_another_student_of_the_recipe_lacks_three_names_and_more(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from lead_trainer.recipes.distill.recipe import RECIPE

    torch.save(RECIPE.model(RECIPE.config({"model": "reasoning"}, "tiny"), {}).state_dict(), here / "other.pt")
    said = refused([*TINY, "load_file=other.pt"], capsys)
    assert "its weights are of another student: they also hold " in said and len(said) < 300


def test_names_are_few() -> None:
    assert few_names("ab") == "a, b" and few_names("abcde") == "a, b, c and 2 more"
    assert weights_fault("abcdef", "aghijk") == "they lack b, c, d and 2 more; they also hold g, h, i and 2 more"
    assert weights_fault("ab", "ab") == ""
