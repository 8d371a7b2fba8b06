"""`lead evaluate FILE` without anything else: the numbers that the run logged, to the bit, and a report beside them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lead_testing.local_groups import newest_manifest
from lead_trainer.commands.evaluate import evaluate_checkpoint
from lead_trainer.commands.train import train_locally
from lead_trainer.example_worlds.lead.tree import write_example_tree
from lead_trainer.report.evaluation import EvaluationReport, Trained


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of recipe `lead` whose averaged weights are validated on half of the routes."""
    folder = tmp_path_factory.mktemp("lead")
    write_example_tree(folder / "tree", routes=4, frames=10, seed=0)
    torch.set_num_threads(1)
    arguments = ["preset=demo", "epochs=1", "num_threads=1", "batch_size=4", "max_samples=4", "ema_decay=0.5",
                 "validation_fraction=0.5", f"carla_root={folder / 'tree'}", f"logdir={folder / 'run'}"]  # fmt: skip
    train_locally(arguments, [], {})
    return folder / "run"


def test_a_planner_of_recipe_lead_is_measured_in_open_loop_with_the_logged_numbers(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logged = {name[4:]: value for name, value in newest_manifest(run).metrics.items() if name.startswith("val/")}
    found = evaluate_checkpoint(run / "ema_0000.pth", [], "val", None, {})
    assert found == logged and len(found) > 5
    shown = capsys.readouterr().out
    assert f"all {len(logged)} logged numbers are found again, bit for bit" in shown and "report.md" in shown
    report = json.loads((run / "report.json").read_text())
    assert report["recipe"] == "lead" and report["metrics"] == logged and report["differing"] == []
    assert report["trained"]["seed"] == 0 and report["datasets"] == report["trained"]["datasets"] != []
    assert (run / "report_pictures/val_picture_0000000.png").stat().st_size > 1000


def test_a_changed_argument_is_named_as_the_reason_of_a_difference(run: Path) -> None:
    evaluate_checkpoint(run / "ema_0000.pth", ["validation_fraction=0.9"], "val", None, {})
    report = json.loads((run / "report.json").read_text())
    assert report["differing"] and report["changed"] == ["validation_fraction=0.9"]
    assert "validation_fraction=0.9 was given" in (run / "report.md").read_text()


def test_a_report_names_each_number_that_differs_and_why() -> None:
    trained = Trained("train", 3, 2, 40, "abc", 2, "1.0", ["one"], "ema.pth", {"loss": 0.5, "ADE": 1.0})
    report = EvaluationReport("a.pth", "0" * 64, "toy", "val", [], ["two"], {"loss": 0.5, "ADE": 1.1}, trained, {})
    assert report.differing() == ["ADE"]
    assert report.verdict() == (
        "1 of 2 logged numbers differ: ADE; the run validated ema.pth, the data are others, "
        "the run had 2 processes, the run had torch 1.0"
    )
    assert "| ADE | 1.1 | 1 |" in report.markdown() and "| loss | 0.5 | equal |" in report.markdown()
    assert replace(report, metrics={"loss": 0.5, "ADE": 1.0}).verdict().startswith("all 2 logged numbers are found")
    assert "nothing logged" in replace(report, trained=None).verdict()
