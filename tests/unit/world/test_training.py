"""Trainings of the smallest model by the commands that a user types: what they leave, and that nothing is lost."""

import json
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lead_testing.local_groups import newest_manifest, train_in_group
from lead_testing.small_world import SMALL_WORDS
from lead_trainer.commands.train import train_locally
from lead_trainer.recipes.world.guide_commands import main

SEED = 42


@pytest.fixture(scope="module")
def run(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of two epochs by the guide's command."""
    logdir = tmp_path_factory.mktemp("runs") / "run"
    words = [*SMALL_WORDS[1:], f"--data-root={tree}", f"--logdir={logdir}", "--epochs=2", "--batch-size=4",
             "--loss.pred_from_epoch_share=0", "--logging.log_interval=1", "--logging.image_interval=2",
             "--histograms-every-steps=2"]  # fmt: skip
    assert main(["train", *words]) == 0
    return logdir


def test_w_52_every_script_of_the_guide_runs_with_its_flags(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    processed = tmp_path / "processed/nuscenes"
    command = ["prepare_dataset", "--dataset", "nuscenes", "--data-root", str(tree), "--output", str(processed)]
    assert main([*command, "--image-size", "32", "32"]) == 0
    assert "3 scenes written (2 train, 1 val)" in capsys.readouterr().out
    small = [word for word in SMALL_WORDS[1:] if not word.startswith("preset")]
    few = ["--loss.perceptual_weight=0", "--max-samples=4", "--training.batch_size=4", "--data.num_workers=1"]
    words = ["--config", "configs/training/base.yaml", "--data-root", str(processed), *few, *small]
    assert main(["train", *words, "--epochs=1"]) == 0
    assert (tmp_path / "runs/report.md").is_file()
    assert main(["find_lr", *words, "--logdir=sweep", "--min-lr", "1e-6", "--max-lr", "1e-2", "--steps=4"]) == 0
    assert (tmp_path / "sweep/lr_curve.csv").is_file()
    assert main(["benchmark"]) == 64 and main(["prepare_dataset", *command[1:4], "nowhere"]) != 0


def events(logdir: Path) -> dict[str, list[str]]:
    found = EventAccumulator(str(logdir))
    found.Reload()
    tags: dict[str, list[str]] = found.Tags()
    return tags


def test_w_25_scalars_have_the_guides_tags(run: Path) -> None:
    scalars = set(events(run)["scalars"])
    assert {f"train/{name}" for name in ("loss", "recon_loss", "pred_loss", "psnr", "ssim")} <= scalars
    assert {
        f"val/{name}" for name in ("loss", "psnr", "ssim", "pred_psnr", "copy_last_psnr", "mean_picture_psnr")
    } <= scalars
    assert {"lr", "lr/encoder", "lr/dynamics", "lr/decoder", "metric/latent_spread", "val/latent_frechet"} <= scalars


def test_w_26_and_w_27_pictures_and_histograms_are_there(run: Path) -> None:
    found = events(run)
    assert {"train/reconstruction", "train/prediction", "val/samples"} <= set(found["images"])
    assert {"val/rollout"} <= set(found["images"])
    kinds = {tag.split("/")[0] for tag in found["histograms"]}
    assert kinds == {"weights", "gradients"}


def test_w_46_and_w_58_a_training_ends_with_a_report_beside_its_weights(run: Path) -> None:
    report = json.loads((run / "report.json").read_text())
    assert report["split"] == "val" and report["windows"] == 6
    assert set(report["psnr_by_step"]) == {"model", "copy_last", "mean_picture", "one_colour"}
    assert all(len(values) == 3 for values in report["psnr_by_step"].values())
    kept = newest_manifest(run, SEED).metrics
    for name in ("psnr", "ssim", "pred_psnr", "mean_picture_psnr"):
        assert report["means"][name] == pytest.approx(kept[f"val/{name}"], abs=1e-5)
    page = (run / "report.md").read_text()
    assert "| step | model |" in page and '"latent_dim": 16' in page
    shown = {path.name for path in (run / "report_pictures").iterdir()}
    assert shown >= {"samples_0000000.png", "rollout_0000000.gif", "val_samples_0000000.png"}
    assert report["metrics"] == report["trained"]["logged"] and not report["differing"]


def test_w_22_and_w_23_the_console_has_the_guides_lines_and_stages(
    run: Path, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SMALL_WORDS, f"data_root={tree}", f"logdir={run}-console", "epochs=2", "console_every_steps=1"]
    train_locally([*words, "max_samples=8"], [], {})
    found = capsys.readouterr().err
    for part in ("epoch 1/2", "step 1/2", "recon_loss", "train/psnr", "train/ssim", "lr ", "s/step", "best val/psnr",
                 "stage initialization", "stage refinement"):  # fmt: skip
        assert part in found, part


def test_w_38_w_39_and_w_49_memory_preset_trains_with_leftover_batches(tree: Path, tmp_path: Path) -> None:
    words = [*SMALL_WORDS, f"data_root={tree}", f"logdir={tmp_path / 'run'}", "epochs=1", "max_samples=7",
             "batch_size=1", "gradient_accumulation_steps=4", "gradient_checkpointing=true"]  # fmt: skip
    train_locally([*words, "precision=bf16"], [], {})
    assert newest_manifest(tmp_path / "run", SEED).step == 2


def test_w_44_the_curriculum_draws_a_third_an_epoch_and_resumes_in_its_phase(tree: Path, tmp_path: Path) -> None:
    words = [*SMALL_WORDS, f"data_root={tree}", f"logdir={tmp_path / 'run'}", "batch_size=2", "curriculum.enabled=true",
             "curriculum.epochs_per_phase=1"]  # fmt: skip
    train_locally([*words, "epochs=2"], [], {})
    assert newest_manifest(tmp_path / "run", SEED).step == 2 + 2
    train_locally([*words, "epochs=4"], [], {})
    assert newest_manifest(tmp_path / "run", SEED).step == 2 + 2 + 2 + 6


def test_w_28_and_w_55_wandb_keeps_a_run_offline(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    words = [*SMALL_WORDS, f"data_root={tree}", f"logdir={tmp_path / 'run'}", "epochs=1", "max_samples=4",
             "use_wandb=true", "wandb_project=world-model", "wandb_name=experiment-001"]  # fmt: skip
    train_locally(words, [], {"WANDB_MODE": "offline"})
    assert list((tmp_path / "run").rglob("offline-run-*"))


def test_two_ranks_killed_in_a_step_and_in_a_validation_end_with_an_uninterrupted_runs_bits(
    tree: Path, tmp_path: Path
) -> None:
    words: list[Any] = [
        *SMALL_WORDS, f"data_root={tree}", "epochs=3", "batch_size=4", "every_steps=1", "max_samples=8",
        "loss.pred_from_epoch_share=0.34", "model.dynamics.dropout=0.1", "data.augmentation.flip=0.5",
        "async_checkpoints=false",  # a kill may follow the first commit at once
    ]  # fmt: skip
    whole, cut = ([*words, f"logdir={tmp_path / name}"] for name in ("whole", "cut"))
    assert train_in_group(whole, 2) == [0, 0]
    draw = random.Random(19)
    assert -signal.SIGKILL in train_in_group(cut, 2, (draw.randrange(2), draw.randrange(2, 6)))
    assert -signal.SIGKILL in train_in_group(cut, 2, (draw.randrange(2), draw.randrange(1, 3)), within="evaluate")
    assert 0 < newest_manifest(tmp_path / "cut", SEED).step < 6
    assert train_in_group(cut, 2) == [0, 0]
    expected, found = (newest_manifest(tmp_path / name, SEED) for name in ("whole", "cut"))
    assert (found.step, found.parameters_sha256) == (6, expected.parameters_sha256) and found.final
    assert found.metrics["val/latent_frechet"] == expected.metrics["val/latent_frechet"]
    for part in ("optimizer", "scaler"):
        assert found.files[found.parts[part]].sha256 == expected.files[expected.parts[part]].sha256
