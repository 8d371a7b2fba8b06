"""Training and evaluating as a person types them, each command a process of its own, in a folder of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lead_protocol.exit_codes import ExitCode
from lead_testing.forecasting_trees import write_argoverse2_tree
from lead_trainer.cli import main
from lead_trainer.example_worlds.distill.tree import write_example_tree
from lead_trainer.local.run import local_run
from lead_trainer.recipes.lead.recipe import RECIPE as LEAD_RECIPE

LEAD = Path(sys.executable).with_name("lead")


def lead(folder: Path, line: str) -> str:
    """Runs a line of the shell in a folder and returns what it printed."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("LEAD_")}
    done = subprocess.run(
        [str(LEAD), *line.split()], cwd=folder, env={**environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_student_of_clips_is_measured_beside_going_straight_on(tmp_path: Path) -> None:
    write_example_tree(tmp_path / "clips", train=4, val=3, resolution=32, seed=0)
    lead(tmp_path, "train recipe=distill preset=tiny data_root=clips epochs=1 --ema")
    assert {path.name for path in (tmp_path / "checkpoints").glob("*.*")} >= {
        "baseline_seed42_latest.pt", "baseline_seed42_best.pt", "config.json"}  # fmt: skip
    told = lead(tmp_path, "evaluate checkpoints/baseline_seed42_latest.pt --split train batch_size=3")
    assert "clips train" in told and ", 4 clips" in told and "agents" not in told
    lead(tmp_path, "export checkpoints bundle")
    assert sorted(path.name for path in (tmp_path / "bundle").iterdir()) == ["baseline_seed42_epoch1.pt", "config.json"]
    exported = lead(tmp_path, "evaluate bundle/baseline_seed42_epoch1.pt --split train batch_size=3")
    assert exported.partition("┏")[2].partition("┘")[0] == told.partition("┏")[2].partition("┘")[0] != ""
    assert "minADE_1" in told and "constant velocity and heading" in told and "submission" not in told
    best = tmp_path / "checkpoints/baseline_seed42_best.pt"
    next_stage = local_run(["recipe=distill", "model=baseline", "logdir=next", f"load_file={best}"], [], {})
    assert next_stage.config.model_size == "tiny"  # the student's shape is taken over from the config beside it


def test_a_forecaster_is_measured_and_its_submission_written(tmp_path: Path) -> None:
    write_argoverse2_tree(tmp_path / "av2", {"train": 2, "val": 1})
    keys = "benchmark=argoverse2 input_type=vector num_modes=6 argoverse2_root=av2 logdir=out epochs=1 batch_size=2"
    lead(tmp_path, f"train recipe=distill preset=tiny {keys}")
    (tmp_path / "av2").rename(tmp_path / "moved")
    told = lead(tmp_path, "evaluate out/baseline_seed42_best.pt --split val --argoverse2-root moved batch_size=1")
    assert "argoverse2 val" in told and ", 1 agents" in told and "OffRoadRate" in told
    assert (tmp_path / "out/baseline_seed42_best_val_argoverse2_submission.parquet").is_file()


def test_weights_are_measured_by_the_recipe_whose_config_lies_beside_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = tmp_path / "model_0030.pth"
    weights.write_bytes(b"LEAD's")
    (tmp_path / "config.json").write_text(json.dumps(LEAD_RECIPE.config_document(LEAD_RECIPE.config({}, "demo"))))
    assert main(["evaluate", str(weights)]) == ExitCode.BAD_CONFIG
    *_, sentence = capsys.readouterr().err.strip().splitlines()
    assert "carla_root: folder data/carla_leaderboard2 does not exist" in sentence
    (tmp_path / "config.json").write_text('{"nobody": 1}')
    assert main(["evaluate", str(weights)]) == ExitCode.BAD_CONFIG
    (sentence,) = capsys.readouterr().err.strip().splitlines()
    assert (
        "is a config of none of the installed recipes (distill, lead, nuplan, world); set the recipe of these weights"
        in sentence
    )


def test_a_word_that_is_no_key_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["evaluate", "best.pt", "--split", "val", "batch_size=2", "stray"])
    assert "unrecognized arguments: stray" in capsys.readouterr().err
