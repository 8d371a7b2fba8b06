"""Recipes unlike ours train on two ranks by `lead train`, validate, are killed and resumed bit for bit, and export."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lead_protocol.manifests import CheckpointManifest
from lead_testing.foreign_recipes import NAMES, install
from lead_testing.local_groups import Kill, newest_manifest, train_in_group
from lead_trainer.commands.evaluate import evaluate_checkpoint
from lead_trainer.errors import BadConfig

KILLED = -9
Train = Callable[..., list[int | None]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = install(tmp_path_factory.mktemp("foreign"))
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lines with objects of classes 2, 5 and 9; one split has 13 samples, the other 5, over two ranks."""
    root, random = tmp_path_factory.mktemp("lines"), np.random.default_rng(3)
    for split, count in (("train", 16), ("val", 5)):
        for number in range(count):
            file = root / f"{split}{number % 2}/{number:04d}.txt"
            file.parent.mkdir(exist_ok=True)
            file.write_text("".join(f"{kind} {random.integers(16)}\n" for kind in (2, 5, 9)))
    return root


@pytest.fixture
def train(site: Path, data: Path) -> Train:
    def train(name: str, logdir: Path, ranks: int = 2, kill: Kill = (0, 0), more: tuple[str, ...] = ()) -> Any:
        root = [f"data_root={data}"] if name == "detection" else []
        return train_in_group([f"recipe={name}", f"logdir={logdir}", *root, *more], ranks, kill, site)

    return train


def tags(logdir: Path) -> dict[str, list[str]]:
    events = EventAccumulator(str(logdir))
    events.Reload()
    found: dict[str, list[str]] = events.Tags()
    return found


def weights(logdir: Path) -> tuple[CheckpointManifest, dict[str, torch.Tensor]]:
    manifest = newest_manifest(logdir)
    key = manifest.files[manifest.parts["model"]].key
    return manifest, torch.load(logdir / ".lead" / key, weights_only=True)


@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_end_killed_and_resumed_with_the_bits_of_an_uninterrupted_run(
    name: str, train: Train, tmp_path: Path
) -> None:
    steps = ("every_steps=1",)
    assert train(name, tmp_path / "whole", more=steps) == [0, 0]
    assert KILLED in train(name, tmp_path / "cut", kill=(1, 8), more=steps)
    assert 0 < newest_manifest(tmp_path / "cut").step < newest_manifest(tmp_path / "whole").step
    assert train(name, tmp_path / "cut", more=steps) == [0, 0]
    (whole, expected), (cut, found) = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert whole.parameters_sha256 == cut.parameters_sha256 and whole.final and cut.final
    assert whole.metrics["val/loss"] == cut.metrics["val/loss"] > 0
    assert all(torch.equal(expected[key], found[key]) for key in expected)
    optimizers = [part for part in whole.parts if part.startswith("optimizer")]
    for part in optimizers:
        assert whole.files[whole.parts[part]].sha256 == cut.files[cut.parts[part]].sha256


@pytest.mark.parametrize("name", NAMES)
def test_a_run_learns_exports_and_leaves_only_what_is_kept(name: str, train: Train, tmp_path: Path, site: Path) -> None:
    assert train(name, tmp_path / "short", 1, more=("epochs=1",)) == [0]
    assert train(name, tmp_path / "run", 1, more=("epochs=6", "keep_last=2", "keep_best=0")) == [0]
    manifests = list((tmp_path / "run/.lead").rglob("manifest/*.json"))
    assert len(manifests) == 2
    short, long = (newest_manifest(tmp_path / run).metrics["val/loss"] for run in ("short", "run"))
    assert long < short
    words = [sys.executable, "-m", "lead_trainer", "export", str(tmp_path / "run"), str(tmp_path / "bundle")]
    ended = subprocess.run(
        words, capture_output=True, text=True, env={"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin"}
    )
    assert ended.returncode == 0, ended.stderr
    assert {file.suffix for file in (tmp_path / "bundle").iterdir()} & {".pth", ".pt"}
    shutil.rmtree(tmp_path / "bundle")


def test_lead_evaluate_measures_the_validation_of_any_recipe(train: Train, tmp_path: Path, data: Path) -> None:
    assert train("detection", tmp_path / "run", 1, more=("epochs=1",)) == [0]
    kept = newest_manifest(tmp_path / "run").metrics
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the run had: some processors sum in another order with more
    found = evaluate_checkpoint(tmp_path / "run/model_0000.pth", ["recipe=detection"], "val", None, {})
    torch.set_num_threads(threads)
    assert {f"val/{name}": value for name, value in found.items()} == {
        name: value for name, value in kept.items() if name.startswith("val/")
    }
    with pytest.raises(BadConfig, match="--split: found test, expected val: those of recipe detection"):
        evaluate_checkpoint(tmp_path / "run/model_0000.pth", ["recipe=detection"], "test", None, {})


def inspected(what: str, logdir: Path, site: Path) -> str:
    words = [sys.executable, "-m", "lead_trainer", "inspect", what, "recipe=adversarial", f"logdir={logdir}"]
    ended = subprocess.run(
        words, capture_output=True, text=True, env={"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin"}
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_lead_inspect_shows_the_clips_and_the_first_of_several_optimizers(site: Path, tmp_path: Path) -> None:
    assert "clip" in inspected("batch", tmp_path, site)
    (clip,) = tmp_path.glob("*.gif")
    with Image.open(clip) as opened:
        assert getattr(opened, "n_frames", 1) > 1
    assert "not finite" in inspected("range", tmp_path, site)


def test_two_optimizers_helpers_and_clips(train: Train, tmp_path: Path) -> None:
    assert train("adversarial", tmp_path / "run") == [0, 0]
    manifest, state = weights(tmp_path / "run")
    assert {"optimizer_decoder", "optimizer_critic"} <= manifest.parts.keys() and "optimizer" not in manifest.parts
    assert not [name for name in state if "helper" in name or "perceptual" in name]
    assert {name.split(".")[0] for name in state} == {"decoder", "critic", "slow"}
    assert not torch.equal(state["slow.weight"], state["decoder.3.weight"])
    found = tags(tmp_path / "run")
    assert {"gan/critic", "gan/decoder", "gan/perceptual"} <= set(found["scalars"])
    assert found["images"] == ["val/rollout"]
    gifs = list((tmp_path / "run").rglob("val_rollout_*.gif"))
    assert len(gifs) == 2 and gifs[0].read_bytes()[:3] == b"GIF"


def test_average_precision_is_that_of_the_whole_split_on_any_number_of_ranks(train: Train, tmp_path: Path) -> None:
    """Five samples over two ranks: the shares are not equal, and one rank's mean is not the split's."""
    words = ("epochs=1", "batch_size=4")
    assert train("detection", tmp_path / "two", 2, more=words) == [0, 0]
    two = newest_manifest(tmp_path / "two").metrics
    assert {"val/AP/2", "val/AP/5", "val/AP/9", "val/mAP"} <= two.keys()
    from lead_testing.foreign_recipes.detection import AveragePrecision, Detector

    manifest, state = weights(tmp_path / "two")
    loop = json.loads((tmp_path / "two/.lead" / manifest.files[manifest.parts["loop"]].key).read_text())
    assert loop["facts"] == {"classes": [2, 5, 9], "counts": [21.0, 21.0, 21.0]}
    model = Detector([2, 5, 9])
    model.load_state_dict(state)
    assert AveragePrecision([2, 5, 9]).classes == model.classes
    assert two["val/mAP"] == pytest.approx(np.mean([two[f"val/AP/{kind}"] for kind in (2, 5, 9)]))


def test_files_tags_rates_and_unequal_epochs_by_step(train: Train, tmp_path: Path) -> None:
    assert train("stepwise", tmp_path / "run", more=("data.points=8", "data.grows_by=4")) == [0, 0]
    manifest, _ = weights(tmp_path / "run")
    assert manifest.step == 2 + 3 + 4  # 8, 12 and 16 points in batches of 4
    assert manifest.parts["model"] == "step_9_model.pt"
    assert {path.name for path in (tmp_path / "run").glob("step_*_model.pt")} >= {"step_9_model.pt"}
    found = set(tags(tmp_path / "run")["scalars"])
    assert {"train/total", "train/fit", "schedule/anneal", "rates/body", "rates/head", "val/loss"} <= found
    assert not [tag for tag in found if tag.startswith(("debug/", "unscaled_loss/", "metric/"))]
    assert train("stepwise", tmp_path / "run", more=("data.points=8", "data.grows_by=4", "data.workers=2")) == [0, 0]
    changed = train("stepwise", tmp_path / "run", 1, more=("data.points=12", "data.grows_by=4"))
    assert changed == [64]
