"""Short trainings of the smallest student: what stays on disk, what is told, when it ends, and that it learns."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lead_protocol.exit_codes import ExitCode
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.store.folder import FolderStore
from lead_testing.toy_jobs import manifests
from lead_trainer.cli import main
from lead_trainer.contract.files import Files
from lead_trainer.contract.step import Position, StepContext
from lead_trainer.engine.samples.dataset import Dataset
from lead_trainer.engine.samples.stage_samples import limited
from lead_trainer.engine.step.schedule import warmed_up
from lead_trainer.local.named_view import config_beside
from lead_trainer.local.run import NAMESPACE, PRIVATE_FOLDER, STAGE, UID, local_run
from lead_trainer.recipes.distill.config_values import load_config
from lead_trainer.recipes.distill.losses import reasoning_scale
from lead_trainer.recipes.distill.recipe import RECIPE

FEW = ["--offline", "--max-train-samples", "8", "--max-val-samples", "4", "tensorboard=false"]


def train(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    """Trains and returns what was told after each epoch."""
    assert main(["train", "recipe=distill", "preset=tiny", f"logdir={folder}", *FEW, *words]) == 0
    printed = capsys.readouterr()
    lines = [json.loads(line) for line in (printed.out + printed.err).splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("event") == "epoch done"]


def weights(folder: Path, name: str) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(folder / name, weights_only=True)
    return found


def test_d_12_d_31_and_d_32_six_epochs_without_data_leave_the_guides_files_and_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model", "reasoning", "--max-epochs", "6", "--seed", "7", "--log-action-stats", "--ema"]
    told = train(tmp_path, capsys, *words)
    names = {path.name for path in tmp_path.iterdir() if path.suffix == ".pt"}
    assert names == {f"reasoning_seed7_{word}.pt" for word in ("best", "latest", "epoch5")}
    assert [line["epoch"] for line in told] == [1, 2, 3, 4, 5, 6]
    of_training = {"loss", "position", "yaw", "reasoning"}
    of_validation = {"ade", "fde", "yaw_error", "final_yaw_error", "loss", "accel_mean", "accel_std", "curvature_mean"}
    of_validation |= {f"{name}_{end}" for name in ("accel", "curvature") for end in ("min", "max")}
    assert of_training | {f"val/{tag}" for tag in of_validation} | {"epochs_since_best"} <= told[-1].keys()
    values = [line["val/loss"] for line in told]
    best = weights(tmp_path, "reasoning_seed7_best.pt")
    latest = weights(tmp_path, "reasoning_seed7_latest.pt")
    same = all(torch.equal(best[name], latest[name]) for name in best)
    assert same == (min(values) == values[-1])


def test_d_13_and_d_25_flat_epochs_end_a_run_and_frozen_statistics_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model", "baseline", "--max-epochs", "9", "--patience", "2", "--freeze-bn", "--lr", "1e-30"]
    told = train(tmp_path, capsys, *words)
    assert [line["epochs_since_best"] for line in told] == [0, 1, 2]
    state = weights(tmp_path, "baseline_seed42_latest.pt")
    means = [value for name, value in state.items() if name.endswith("running_mean")]
    assert means and not any(mean.any() for mean in means)


def test_what_a_few_samples_are_weighed_by_still_warms_up() -> None:
    config = load_config({"model": "reasoning", "offline": True, "overfit_tiny": 4}, "tiny")
    few = limited(RECIPE, config, Dataset(RECIPE.samples(config, {}))).training
    assert few.epoch_draw(0).tolist() == few.epoch_draw(7).tolist()
    model, facts = RECIPE.model(config, RECIPE.facts(config, {})).eval(), RECIPE.facts(config, {})
    batch = RECIPE.collate([few.load(index, 7) for index in few.epoch_draw(7)[:4].tolist()])
    losses, reasoning = {}, torch.zeros(())
    for epoch in (0, 7):
        found = RECIPE.step(model, batch, StepContext(config=config, facts=facts, at=Position(epoch=epoch)))
        losses[epoch], reasoning = found.loss, found.parts["reasoning"]
    warmed = reasoning_scale(config, 7) - reasoning_scale(config, 0)
    assert warmed > 0 and reasoning > 0
    torch.testing.assert_close(
        losses[7] - losses[0], config.reasoning_weight * warmed * reasoning, rtol=1e-3, atol=1e-4
    )


def test_models_share_a_folder_and_a_file_of_it_resumes_its_own_run_from_its_newest_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--max-epochs", "1", "--seed", "7", "--save-every", "1"]
    for model in ("baseline", "reasoning"):
        train(tmp_path, capsys, "--model", model, *words, "tensorboard=true")
        assert len(list((tmp_path / f"{model}_seed7").glob("events.out.tfevents.*"))) == 1
    for model in ("baseline", "reasoning"):
        config = config_beside(tmp_path / f"{model}_seed7_best.pt")
        assert json.loads(config.read_text())["model"] == model
    latest = tmp_path / "baseline_seed7_latest.pt"
    copied = tmp_path / "elsewhere" / latest.name
    copied.parent.mkdir()
    shutil.copyfile(latest, copied)
    told = train(tmp_path, capsys, "--max-epochs", "2", "--resume", str(latest), "--save-every", "1", "--patience", "9")
    assert [line["epoch"] for line in told] == [2]
    for file, reason in (
        (tmp_path / "baseline_seed7_epoch1.pt", "is not the checkpoint of epoch 2"),
        (copied, "is of no run that was made in"),
    ):
        assert main(["train", "recipe=distill", "preset=tiny", *FEW, "--resume", str(file)]) == ExitCode.BAD_CONFIG
        assert reason in capsys.readouterr().err
    older, newest = (copied.with_name(f"my {name}.pt") for name in ("older", "newest"))
    shutil.copyfile(copied, older)
    shutil.copyfile(latest, newest)
    there = ["--max-epochs", "3", "--seed", "7", "--patience", "9", "--model", "baseline"]
    words = ["train", "recipe=distill", "preset=tiny", f"logdir={tmp_path}", *FEW, *there]
    assert main([*words, "--resume", str(older)]) == ExitCode.BAD_CONFIG
    assert "is not the checkpoint of epoch 2" in capsys.readouterr().err
    told = train(tmp_path, capsys, *there, "--resume", str(newest))
    assert [line["epoch"] for line in told] == [3]


@pytest.mark.parametrize(("words", "warned"), [(["--freeze-bn"], True), ([], False)])
def test_statistics_that_are_frozen_before_they_were_measured_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], warned: bool
) -> None:
    model = ["model=baseline", "epochs=1", f"logdir={tmp_path}"]
    assert main(["train", "recipe=distill", "preset=tiny", *FEW, *model, *words]) == 0
    assert ("freeze_bn: the backbone keeps the statistics" in capsys.readouterr().err) == warned


def test_models_that_share_a_folder_and_a_seed_have_checkpoints_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--seed", "7", "--patience", "9"]
    for model, epochs, trained in (("baseline", "1", [1]), ("reasoning", "1", [1]), ("baseline", "2", [2])):
        told = train(tmp_path, capsys, "--model", model, *words, "--max-epochs", epochs)
        assert [line["epoch"] for line in told] == trained
    store = FolderStore(tmp_path / PRIVATE_FOLDER)
    kinds = [InstanceKeys(NAMESPACE, UID, f"{STAGE}-{model}", 7) for model in ("baseline", "reasoning")]
    assert [len(manifests(store, keys)) for keys in kinds] == [2, 1]


def test_a_recipe_that_names_files_need_not_part_runs(tmp_path: Path) -> None:
    recipe = replace(RECIPE, files=Files(names=RECIPE.files.names, shown=RECIPE.files.shown))
    run = local_run(["recipe=distill", "preset=tiny", f"logdir={tmp_path}", "model=baseline"], [], {})
    run = replace(run, recipe=recipe)
    assert (run.instance.stage, run.events_folder) == (STAGE, tmp_path)


def test_runs_that_share_a_folder_share_no_scratch(tmp_path: Path) -> None:
    found = {
        local_run(
            ["recipe=distill", "preset=tiny", f"logdir={tmp_path}", f"model={model}", f"seed={seed}"], [], {}
        ).scratch_folder
        for model in ("baseline", "reasoning")
        for seed in (1, 2)
    }
    assert len(found) == 4


@pytest.mark.parametrize("values", [{}, {"no_unicycle": True, "model": "reasoning"}], ids=["unicycle", "direct"])
def test_d_26_four_samples_are_learnt_by_heart(values: dict[str, Any]) -> None:
    config = load_config({"model": "baseline", "offline": True, **values}, "tiny")
    samples, facts = RECIPE.samples(config, {}), RECIPE.facts(config, {})
    batch = RECIPE.collate([samples.load(index, 0) for index in range(4)])
    torch.manual_seed(0)
    model = RECIPE.model(config, facts).train()
    optimizer = RECIPE.optimizer(model, config)
    assert isinstance(optimizer, torch.optim.Optimizer)
    losses: list[float] = []
    for step in range(300):
        for group in optimizer.param_groups:
            group["lr"] = config.lr * warmed_up(lambda _: 1.0, 10)(step)
        loss = RECIPE.step(model, batch, StepContext(config=config, facts=facts)).loss
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
        if losses[-1] < 0.01 * losses[0]:
            break
    assert losses[-1] < 0.01 * losses[0], f"{losses[0]} -> {losses[-1]} in {len(losses)} steps"
