"""Trainings of the smallest model by the commands that a user types: what they leave, and that nothing is lost."""

import json
import signal
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lead_protocol.manifests import sha256_of_file
from lead_testing.local_groups import newest_manifest, train_in_group
from lead_trainer.commands.evaluate import evaluate_checkpoint
from lead_trainer.commands.train import train_locally
from lead_trainer.example_worlds.nuplan.tree import ExampleTree, write_example_tree
from lead_trainer.recipes.nuplan.config import NuplanConfig
from lead_trainer.recipes.nuplan.config_values import KEYS
from lead_trainer.recipes.nuplan.data_keys import TASKS

SMALL = ["recipe=nuplan", "preset=tiny", 'data.cameras=["CAM_F0","CAM_B0"]', "data.image_size=[32,48]",
         "model.bev_channels=16", "model.image_channels=8", "model.pillar_channels=8", "data.stride_s=1.0",
         "data.val_share=0.5"]  # fmt: skip
EVERY_METRIC = {
    "mAP", "AP/vehicle", "mIoU", "occupancy_accuracy", "ADE", "FDE", "miss_rate", "mode_recall", "mode_precision",
    "collision_rate", "ADE_constant_velocity",
}  # fmt: skip


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("nuplan")
    write_example_tree(root, ExampleTree(logs=4, seconds=4, blobs_every=20, size=(54, 96), cars=2))
    return root


@pytest.fixture(scope="module")
def run(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of two epochs, with averaged weights and learned task weights."""
    torch.set_num_threads(1)
    logdir = tmp_path_factory.mktemp("runs") / "run"
    arguments = [*SMALL, f"data_root={tree}", f"logdir={logdir}", "epochs=2", "loss.weighting=learned", "ema_decay=0.5",
             "log_scalars_frequency=1", "log_images_frequency=1"]  # fmt: skip
    train_locally(arguments, [], {})
    return logdir


def test_n_01_n_02_and_n_40_a_training_logs_the_losses_of_all_four_tasks(run: Path) -> None:
    found = EventAccumulator(str(run))
    found.Reload()
    scalars = set(found.Tags()["scalars"])
    assert {f"train/{task}_loss" for task in TASKS} | {f"train/log_variance/{task}" for task in TASKS} <= scalars
    assert {f"val/{name}" for name in EVERY_METRIC} <= scalars
    assert {"train/overview", "val/overview"} <= set(found.Tags()["images"])
    steps = [event.step for event in found.Scalars("train/loss")]
    assert steps == list(range(1, len(steps) + 1))


def test_n_23_n_33_and_n_38_a_checkpoint_names_what_it_was_trained_with(run: Path) -> None:
    manifest = newest_manifest(run)
    assert {"model", "optimizer", "scheduler", "ema"} <= manifest.parts.keys() and manifest.seed == 0
    assert manifest.git_revision and len(manifest.dataset_digests) == 1 and len(manifest.config_sha256) == 64
    weights = run / manifest.parts["model"]
    assert {f"log_variances.{task}" for task in TASKS} <= torch.load(weights, weights_only=True).keys()


def test_n_39_data_and_results_lie_where_the_guide_has_them_and_the_newest_weights_are_last(run: Path) -> None:
    found = KEYS.config(NuplanConfig, {}, "")
    assert (found.data_root, found.logdir) == ("data/nuplan_mini", "checkpoints/nuplan")
    weights, manifest = max(run.glob("model_*.pth")), newest_manifest(run)
    assert manifest.epoch == 2 and weights.name == manifest.parts["model"] == "model_0001.pth"
    assert sha256_of_file(weights) == manifest.files[weights.name].sha256


def test_n_41_n_50_and_n_58_a_file_alone_gives_the_logged_numbers_and_a_report(run: Path) -> None:
    weights = run / newest_manifest(run).parts["ema"]  # what the run validated
    found = evaluate_checkpoint(weights, [], "val", None, {})
    logged = {name[4:]: value for name, value in newest_manifest(run).metrics.items() if name.startswith("val/")}
    assert found == logged and found.keys() >= EVERY_METRIC
    report = json.loads((run / "report.json").read_text())
    assert report["metrics"] == logged == report["trained"]["logged"] and report["differing"] == []
    assert report["datasets"] == report["trained"]["datasets"] and report["config"]["model"]["modes"] == 2
    page = (run / "report.md").read_text()
    assert f"all {len(logged)} logged numbers are found again, bit for bit" in page and "| mAP |" in page
    assert [path.name for path in (run / "report_pictures").iterdir()] == ["val_overview_0000000.png"]


def test_n_54_two_ranks_end_killed_and_resumed_with_the_bits_of_an_uninterrupted_run(
    tree: Path, tmp_path: Path
) -> None:
    arguments = [*SMALL, f"data_root={tree}", "epochs=2", "batch_size=2", "every_steps=1", "max_samples=4",
             "data.augmentation.brightness=0.2"]  # fmt: skip
    whole, cut = ([*arguments, f"logdir={tmp_path / name}"] for name in ("whole", "cut"))
    assert train_in_group(whole, 2) == [0, 0]
    assert -signal.SIGKILL in train_in_group(cut, 2, (1, 3))
    assert train_in_group(cut, 2) == [0, 0]
    expected, found = (newest_manifest(tmp_path / name) for name in ("whole", "cut"))
    assert (found.step, found.parameters_sha256) == (4, expected.parameters_sha256) and found.final
    assert {name: found.metrics[f"val/{name}"] for name in ("mAP", "ADE", "mIoU")} == {
        name: expected.metrics[f"val/{name}"] for name in ("mAP", "ADE", "mIoU")
    }
