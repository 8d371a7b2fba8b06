"""A folder that is not there, or is another one, is reported with its key and what to type; nothing is left of it."""

import json
import shutil
from pathlib import Path

import pytest

from lead_protocol.exit_codes import ExitCode
from lead_trainer.cli import main
from lead_trainer.example_worlds.distill.tree import write_example_tree

LEAD = ["train", "preset=demo", "epochs=1", "logdir=new/run"]
CLIPS = ["train", "recipe=distill", "preset=tiny", "epochs=1", "logdir=new/run"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LEAD_STORE_URL", raising=False)
    return tmp_path


def refused(words: list[str], capsys: pytest.CaptureFixture[str], code: int = ExitCode.BAD_CONFIG) -> str:
    capsys.readouterr()
    assert main(words) == code
    return capsys.readouterr().err.strip().splitlines()[-1].removeprefix("error: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (LEAD, "carla_root: folder data/carla_leaderboard2 does not exist; set carla_root=DIR"),
        ([*LEAD, "carla_root=nowhere"], "carla_root: folder nowhere does not exist; set carla_root=DIR"),
        (["cache", "preset=demo", "carla_root=nowhere"], "carla_root: folder nowhere does not exist"),
        (["lr-find", *LEAD[1:], "carla_root=nowhere"], "carla_root: folder nowhere does not exist"),
        (["buckets", "preset=demo", "carla_root=nowhere"], "carla_root: folder nowhere does not exist"),
        ([*CLIPS, "data_root=clipz"], "data_root: folder clipz does not exist; set data_root=DIR"),
        ([*CLIPS, "benchmark=nuscenes", "input_type=raster", "nuscenes_root=n"], "nuscenes_root: folder n does not"),
    ],
)
def test_a_folder_that_does_not_exist_is_named_with_its_key(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert refused(words, capsys).startswith(said)
    assert not list(here.iterdir())


@pytest.mark.parametrize(
    ("root", "asked"), [("one/data", "one"), ("one/data/", "one"), ("near", "near/two"), ("one/data/Scenario", "")]
)
def test_another_folder_of_the_tree_is_recognised(
    here: Path, capsys: pytest.CaptureFixture[str], root: str, asked: str
) -> None:
    (here / "one/data/Scenario/Route").mkdir(parents=True)
    (here / "near/two/data").mkdir(parents=True)
    for command in (["train", "epochs=1", "logdir=new/run"], ["buckets"], ["cache"]):
        said = refused([*command, "preset=demo", f"carla_root={root}"], capsys)
        assert said.startswith(f"carla_root: {root.rstrip('/')} has no folder data/")
        assert said.endswith(f"; did you mean carla_root={asked}?") == bool(asked)
    assert not (here / "new").exists() and not list(here.rglob("cache"))


def test_an_empty_tree_names_the_collection_that_was_asked_for(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "one/data/Scenario/Route").mkdir(parents=True)
    (here / "one/data/Scenario/Route/note").touch()
    said = refused([*LEAD, "carla_root=one"], capsys, ExitCode.BAD_DATA)
    assert "for full_pretrain (no_results" in said
    assert not (here / "new").exists()


def test_a_missing_file_of_clips_names_the_whole_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "my clips").mkdir()
    said = refused([*CLIPS, "data_root=my clips"], capsys)
    assert said.endswith("python -m lead_trainer.recipes.distill generate_ego_history --split all --root 'my clips'")
    assert not (here / "new").exists()


def test_a_run_that_is_refused_by_its_data_leaves_no_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_example_tree(here / "clips", train=2, val=1, resolution=32, seed=0)
    said = refused([*CLIPS, "data_root=clips", "batch_size=5"], capsys, ExitCode.BAD_DATA)
    assert "an epoch draws 2 samples, fewer than one batch of 5" in said and "route" not in said
    assert not (here / "new").exists()
    (here / "new/run").mkdir(parents=True)  # somebody else's
    refused([*CLIPS, "data_root=clips", "batch_size=5"], capsys, ExitCode.BAD_DATA)
    assert (here / "new/run").is_dir()
    shutil.rmtree(here / "clips/teacher_labels")
    refused([*CLIPS, "data_root=clips", "logdir=other"], capsys)
    assert not (here / "other").exists()


def test_a_build_says_in_words_that_it_lists_files(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_example_tree(here / "clips", train=2, val=1, resolution=32, seed=0)
    assert main(["cache", "recipe=distill", "preset=tiny", "data_root=clips"]) == ExitCode.DONE
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert lines[0]["event"] == "cache: listing the dataset's files" and "samples" not in lines[0]
    assert lines[-1]["event"] == "cache: done" and lines[-1]["samples"] == 3


def test_keys_of_another_recipe_name_it_where_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "data_root=there", "logdir=here"]) == 64
    assert "data_root: unknown key of recipe lead, which is trained where none is named" in capsys.readouterr().err
    assert main(["train", "recipe=lead", "data_root=there", "logdir=here"]) == 64
    assert "data_root: unknown key; did you mean" in capsys.readouterr().err
