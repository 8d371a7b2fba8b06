"""`lead config` and `lead --version`, and a run that is trained once more from the config it left."""

import inspect
import json
import re
from pathlib import Path

import pytest

from lead_trainer.cli import main
from lead_trainer.commands.config import changed_by, keys_of, values_of
from lead_trainer.contract.installed import load_recipe
from lead_trainer.contract.named_keys import KEYS_OF_A_RUN
from lead_trainer.contract.training_keys import key_names
from lead_trainer.errors import BadConfig
from lead_trainer.local.run import local_run
from lead_trainer.local.run_keys import RunKeys
from lead_trainer.recipes.lead.compat import Compat
from lead_trainer.recipes.lead.config_values import load_config, to_config_json


@pytest.mark.parametrize("name", ["lead", "distill", "world"])
def test_every_key_is_listed_with_its_type_and_value(name: str) -> None:
    recipe = load_recipe(name)
    listed = {key.name: key for key in keys_of(recipe.config_model)}
    assert listed.keys() == set(key_names(recipe.config_model)) == values_of(recipe, "").keys()
    assert all(key.type for key in listed.values())
    assert listed["batch_size"].type == "int >= 1"
    assert {key.name for key in keys_of(RunKeys)} == RunKeys.model_fields.keys()


def test_a_meaning_is_what_the_code_says_of_a_key() -> None:
    listed = {key.name: key.meaning for key in keys_of(load_recipe("distill").config_model)}
    assert listed["freeze_bn"] == "the backbone keeps its running statistics"
    assert listed["compile"] == "compiles the model by torch.compile"


@pytest.mark.parametrize("recipe", ["lead", "distill", "world"])
@pytest.mark.parametrize("preset", ["", "first"])
def test_no_row_lacks_a_meaning_or_shows_a_name_of_the_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, recipe: str, preset: str
) -> None:
    monkeypatch.setattr("lead_trainer.commands.config.LOG_COLUMNS", 400)
    chosen = f"preset={load_recipe(recipe).presets()[0]}" if preset else ""
    assert main(["config", f"recipe={recipe}", *filter(None, [chosen])]) == 0
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    rows = [row for row in rows if row and row[0]]
    shown = {row[0].rstrip("*") for row in rows}
    assert shown | {key.split(".")[0] for key in shown} >= set(key_names(load_recipe(recipe).config_model))
    assert [row[0] for row in rows if not row[3]] == []
    words = {word for row in rows for word in re.findall(r"[A-Za-z]+", row[2])}
    assert not {word for word in words if word[0].isupper()}, "a class of the code"


def test_a_meaning_is_never_that_of_another_key() -> None:
    run = {key.name: key.meaning for key in keys_of(RunKeys)}
    assert run["on_best"] == "a checkpoint also after an epoch that is better than all before"
    assert run["keep_last"] == "newest checkpoints that are kept" and run["resume"] != run["epochs"]
    lead = {key.name: key.meaning for key in keys_of(load_recipe("lead").config_model)}
    assert lead["batch_size"] == "global: of all processes together" and lead["lr"] == "learning rate after warm-up"
    for declared in (RunKeys, load_recipe("lead").config_model, load_recipe("distill").config_model):
        lines = inspect.getsource(declared).splitlines()
        ends_alone = {key.name: key.meaning for key in keys_of(declared)}
        for line in lines:
            name, typed = line.strip().split(":")[0], line.partition(" = ")[1]
            if line.startswith("    ") and typed and ends_alone.get(name) and not line.endswith("("):
                assert line.endswith(f"  # {ends_alone[name]}"), line


def test_the_keys_that_people_meet_first_have_a_meaning() -> None:
    met_first = {"recipe", "preset", "logdir", "load_file", "epochs", "seed", "keep_last", "keep_best"}
    assert met_first <= {key.name for key in keys_of(RunKeys) if key.meaning}
    for recipe in map(load_recipe, ("lead", "distill")):
        meant = {key.name for key in keys_of(recipe.config_model) if key.meaning}
        assert {"logdir", "load_file", "epochs", "batch_size", "lr", "weight_decay", "seed"} <= meant


def test_the_first_table_shows_what_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "recipe=distill", "preset=tiny"]) == 0
    cells = [[cell.strip() for cell in line.split("│")[1:3]] for line in capsys.readouterr().out.splitlines()]
    assert ["recipe", "distill"] in cells and ["preset", "tiny"] in cells
    assert "carla_root" not in {cell[0] for cell in cells if cell}


def test_a_wrong_preset_prints_its_error_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "recipe=distill", "preset=tin"]) != 0
    told = capsys.readouterr()
    assert told.out == "" and "preset: found 'tin'" in told.err


def test_the_command_prints_a_presets_values_and_marks_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "recipe=distill", "preset=tiny"]) == 0
    told = capsys.readouterr().out
    recipe = load_recipe("distill")
    assert {"model", "lr", "resolution"} <= changed_by(recipe, "tiny") and values_of(recipe, "tiny")["resolution"] == 32
    assert "resolution*" in told and "every_epochs" in told and "weight_decay*" in told
    assert main(["config", "lr=3"]) != 0
    assert "config: found 'lr', expected recipe=NAME and preset=NAME" in capsys.readouterr().err


def test_a_page_has_the_rows_of_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "recipe=lead", "preset=demo", "--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [re.split(r" ?(?<!\\)\| ?", line)[1:-1] for line in lines if line.startswith("| `")]
    assert {len(row) for row in rows} == {4}
    keys = {row[0].strip("`*"): row[1:] for row in rows}
    model = load_recipe("lead").config_model
    of_sections = {f"compat.{name}" for name in Compat.model_fields}
    assert keys.keys() == RunKeys.model_fields.keys() | model.model_fields.keys() | of_sections
    assert keys["preset"][0] == "`demo`"
    assert keys["keep_last"] == [
        "`3`",
        "int >= 0",
        "newest checkpoints that are kept",
    ]
    assert keys["seeds"][2] == "trains once a seed, each in `logdir/seed_<n>`"
    assert keys["best_metric"][2].startswith(r"a mean of the epoch, or val/\<metric>;")
    assert keys["resume"][2].startswith(r"auto \| never \| a file")


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out.startswith("lead ")


def test_a_run_is_trained_once_more_from_the_config_it_left(tmp_path: Path) -> None:
    said = {"carla_root": "data", "lr": 1e-3, "use_planning_decoder": True}
    document = to_config_json(load_config(said, "demo"))
    assert "is_pretraining" in document, "a key that follows from others"
    left = tmp_path / "config.json"
    left.write_text(json.dumps({**document, "logdir": str(tmp_path)}))
    assert local_run(["logdir=new"], [left], {}).config == load_config({**said, "logdir": "new"}, "demo")
    assert local_run(["logdir=new", "lr=0.1"], [left], {}).config.lr == 0.1


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("compat=led", "compat: expected lead, fixed, or switches, for example compat.lagging_lr=true"),
        ("compat=3", "compat: expected lead, fixed, or switches, for example compat.lagging_lr=true"),
        ("compat.lagging_lr=often", "compat.lagging_lr: expected true or false, for example compat.lagging_lr=true"),
    ],
)
def test_a_mistake_in_compat_is_told_in_a_sentence(word: str, said: str) -> None:
    with pytest.raises(BadConfig) as error:
        local_run(["logdir=out", word], [], {})
    assert str(error.value) == said


def test_the_contract_knows_which_keys_of_a_run_no_recipe_may_have() -> None:
    assert RunKeys.model_fields.keys() - {"epochs", "seed", "logdir", "load_file"} == KEYS_OF_A_RUN
