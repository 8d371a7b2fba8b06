"""The commands around a training, of each recipe on its smallest run: evaluate, inspect, preflight, bench model."""

import json
from pathlib import Path

import pytest
import torch

from lead_testing.small_runs import ARGUMENTS, arguments_of, write_data
from lead_trainer.cli import main

TRAINED = ("distill", "world")  # the other two have tests of their own of what `lead evaluate` finds


@pytest.fixture(scope="module", params=ARGUMENTS)
def recipe(request: pytest.FixtureRequest) -> str:
    torch.set_num_threads(1)
    return str(request.param)


@pytest.fixture(scope="module")
def tree(recipe: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp(recipe) / "tree"
    write_data(recipe, root)
    return root


def test_preflight_is_ready_and_writes_nothing(
    recipe: str, tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tree.rglob("*"))
    assert main(["preflight", *arguments_of(recipe, tree, tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "routes usable" in shown and "parameters" in shown and "ready to train" in shown
    assert sorted(tree.rglob("*")) == before and not (tmp_path / "run").exists()


def test_inspect_shows_a_batch_finds_no_nan_and_gives_the_range_of_outputs(
    recipe: str, tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = arguments_of(recipe, tree, tmp_path)
    for what, expected in (("batch", "float32"), ("nan", "samples hold a value that is not finite"), ("range", "┃")):
        assert main(["inspect", what, *arguments]) == 0
        assert expected in capsys.readouterr().out, what


def test_bench_model_measures_a_step_of_each_format(
    recipe: str, tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "model", "--seconds", "0.01", *arguments_of(recipe, tree, tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert f"recipe {recipe}" in shown and "fp32" in shown and "half precision" in shown


def test_a_file_of_weights_alone_gives_the_numbers_of_its_run_and_pictures(
    recipe: str, tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if recipe not in TRAINED:
        return
    run = tmp_path / "run"
    assert main(["train", *arguments_of(recipe, tree, run), "epochs=1"]) == 0
    weights = sorted([*run.glob("model_*.pth"), *run.glob("*_best.pt")])[0]
    for old in run.glob("report*"):
        old.unlink() if old.is_file() else [one.unlink() for one in old.iterdir()]
    capsys.readouterr()
    assert main(["evaluate", str(weights)]) == 0
    report = json.loads((run / "report.json").read_text())
    logged = report["trained"]["logged"]
    assert len(logged) > 5 and report["differing"] == [] and report["metrics"] == logged
    assert report["datasets"] == report["trained"]["datasets"] and report["trained"]["seed"] == report["config"]["seed"]
    assert f"all {len(logged)} logged numbers are found again, bit for bit" in (run / "report.md").read_text()
    assert any(picture.stat().st_size > 500 for picture in (run / "report_pictures").iterdir())
