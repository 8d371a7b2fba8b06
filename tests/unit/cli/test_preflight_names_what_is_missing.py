"""`lead preflight`: of any recipe it reports device, model, data, disks and loggers, and leaves nothing behind."""

from pathlib import Path

import pytest

from lead_trainer.cli import main
from lead_trainer.contract.example_world import example_world
from lead_trainer.local.preflight.device import Devices, device_finding
from lead_trainer.local.preflight.disks import GIB, Need, checkpoint_bytes, disk_finding, disk_findings
from lead_trainer.local.preflight.loggers import logger_findings

WORDS = {
    "lead": ["preset=demo", "carla_root={tree}"],
    "distill": ["preset=tiny", "data_root={tree}"],
    "world": ["preset=tiny", "data_root={tree}"],
}
SMALL = {
    "lead": {"routes": 1, "frames": 4},
    "distill": {"train": 2, "val": 1, "resolution": 32},
    "world": {"train": 2, "val": 1, "keyframes": 7, "height": 32, "width": 32},
}


def preflight(recipe: str, tree: Path, logdir: Path, *words: str) -> int:
    own = [word.format(tree=tree) for word in WORDS[recipe]]
    return main(["preflight", f"recipe={recipe}", *own, f"logdir={logdir}", *words])


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.mark.parametrize("recipe", WORDS)
def test_a_run_of_any_recipe_is_checked_and_nothing_is_written(
    recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, tree = example_world(recipe), tmp_path / "tree"
    world.to_folder(tree, {**world.numbers, **SMALL[recipe]}, lambda done, of: None)
    before = files_below(tmp_path)
    assert preflight(recipe, tree, tmp_path / "out") == 0
    shown = capsys.readouterr().out
    assert "routes usable" in shown and "parameters" in shown and "ready to train" in shown
    assert files_below(tmp_path) == before


def test_every_check_that_fails_is_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    words = ["loss.perceptual_weight=0.1", "use_wandb=true"]
    assert preflight("world", tmp_path / "none", tmp_path / "out", *words) == 1
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "model failed loss.perceptual_weight is 0.1" in shown
    assert "data failed data_root: folder" in shown and "W&B: no key" in shown and "3 of 6 checks failed" in shown


def test_a_damaged_picture_is_named_before_any_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world, tree = example_world("world"), tmp_path / "tree"
    world.to_folder(tree, {**world.numbers, **SMALL["world"]}, lambda done, of: None)
    first = min((tree / "samples/CAM_FRONT").iterdir())
    first.write_bytes(first.read_bytes()[:200])
    assert preflight("world", tree, tmp_path / "out") == 1
    assert first.name in "".join(capsys.readouterr().out.replace("│", " ").split())


@pytest.mark.parametrize(
    ("driver", "cuda", "gpus", "result", "text"),
    [
        (
            "NVRM version 550",
            "12.8",
            ("H100, 77 of 80 GiB free",),
            "ok",
            "H100, 77 of 80 GiB free; torch for CUDA 12.8",
        ),
        ("NVRM version 470", "12.8", (), "failed", "finds no usable GPU beside the driver (NVRM version 470); update"),
        ("NVRM version 550", "", (), "failed", "but torch is built for CPUs; install one for CUDA"),
        ("", "12.8", (), "warning", "no GPU: the run trains on 2 CPU cores"),
    ],
)
def test_a_gpu_that_torch_cannot_use_is_a_failure(
    driver: str, cuda: str, gpus: tuple[str, ...], result: str, text: str
) -> None:
    found = device_finding(Devices(driver=driver, torch_cuda=cuda, gpus=gpus, cpus=2))
    assert found.result == result and text in found.text


def test_what_runs_on_one_disk_is_added_up(tmp_path: Path) -> None:
    needs = [Need("cache", tmp_path / "a/b", 3 * GIB), Need("2 checkpoints", tmp_path, 2 * GIB)]
    assert disk_finding(tmp_path, needs, 6 * GIB).result == "ok"
    short = disk_finding(tmp_path, needs, 5 * GIB)
    assert short.result == "failed" and "5.00 GiB free, the run writes about 5.00 GiB" in short.text
    (found,) = disk_findings(needs)
    assert str(tmp_path / "a") not in found.text
    assert checkpoint_bytes(1000, kept=4) == 5 * 3 * 4 * 1000


@pytest.mark.parametrize(
    ("mode", "environ", "lacking", "result", "text"),
    [
        ("disabled", {}, "", "ok", "W&B: not asked for"),
        ("offline", {}, "", "ok", "W&B: offline"),
        ("online", {"WANDB_API_KEY": "x"}, "", "ok", "W&B: online"),
        ("online", {}, "", "failed", "W&B: no key; set WANDB_API_KEY"),
        ("offline", {}, "wandb", "failed", "W&B: wandb is not installed"),
    ],
)
def test_a_logger_without_package_or_key_is_a_failure(
    mode: str, environ: dict[str, str], lacking: str, result: str, text: str, tmp_path: Path
) -> None:
    found = logger_findings(
        tensorboard=True, mode=mode, environ={"HOME": str(tmp_path), **environ}, installed=lambda name: name != lacking
    )
    assert [each.result for each in found] == ["ok", result] and text in found[1].text


def test_a_key_of_an_earlier_login_is_found(tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password key\n")
    found = logger_findings(tensorboard=False, mode="online", environ={"HOME": str(tmp_path)})
    assert [each.result for each in found] == ["warning", "ok"]
    missing = logger_findings(tensorboard=True, mode="disabled", environ={}, installed=lambda name: False)
    assert "tensorboard is not installed" in missing[0].text
