"""`lead preflight`: what it reports of device, model, data, disks and loggers where one of them is wrong."""

from pathlib import Path

import pytest

from lead_testing.small_runs import arguments_of, write_data
from lead_trainer.cli import main
from lead_trainer.local.preflight.device import Devices, device_finding
from lead_trainer.local.preflight.disks import GIB, Need, checkpoint_bytes, disk_finding, disk_findings
from lead_trainer.local.preflight.loggers import logger_findings


def preflight(recipe: str, tree: Path, logdir: Path, *words: str) -> int:
    return main(["preflight", *arguments_of(recipe, tree, logdir), *words])


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
    assert "checkpoints not computed: the model cannot be made" in shown and "0.00 GiB" not in shown
    assert "data failed data_root: folder" in shown and "W&B: no key" in shown and "3 of 6 checks failed" in shown


def test_a_damaged_picture_is_named_before_any_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = tmp_path / "tree"
    write_data("world", tree)
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
    unknown = [Need("cache", tmp_path, 3 * GIB), Need("2 checkpoints", tmp_path, None, "no model")]
    text = disk_finding(tmp_path, unknown, 9 * GIB).text
    assert text.endswith("the run writes at least 3.00 GiB (cache 3.00 GiB, 2 checkpoints not computed: no model)")


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
