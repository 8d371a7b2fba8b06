"""`lead train` without a cluster: LEAD's files in logdir, the same bits after a kill, exported, checked."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from lead_protocol.exit_codes import ExitCode
from lead_testing.toy_jobs import toy_environment
from lead_testing.toy_recipe import ToyModel
from lead_testing.toy_runs import toy_recipe_installed
from lead_trainer.cli import main
from lead_trainer.commands import train as cli_train
from lead_trainer.engine.group.stop import StopFlag


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder in which the toy recipe is installed; signal handlers are put back after."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    monkeypatch.chdir(tmp_path)
    with toy_recipe_installed(tmp_path):
        yield tmp_path
    for number, handler in handlers.items():
        signal.signal(number, handler)


def lead(folder: Path, *words: str, signal: str = "") -> subprocess.CompletedProcess[str]:
    environ = {**toy_environment(folder, folder / "unused"), "LEAD_TOY_SIGNAL": signal}
    command = [sys.executable, "-m", "lead_trainer", *words]
    return subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, timeout=300)


def test_a_killed_run_resumes_to_the_same_bits_under_leads_names(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.set_num_threads(1)
    assert main(["train", "recipe=toy", "logdir=whole", "epochs=2"]) == ExitCode.DONE
    at_once = "async_checkpoints=false"  # the kill follows the commit of an epoch's end by three steps
    assert lead(here, "train", "recipe=toy", "logdir=killed", "epochs=2", at_once, signal="KILL:9:0").returncode == -9
    assert (here / "killed/model_0000.pth").is_file()
    assert main(["train", "recipe=toy", "logdir=killed", "epochs=2"]) == ExitCode.DONE
    names = {path.name for path in (here / "killed").iterdir() if not path.name.startswith(("events.", "."))}
    assert names == {
        "config.json",
        "gradient_steps_skipped_0001.txt",
        "model_0001.pth",
        "optimizer_0001.pth",
        "scaler_0001.pth",
        "scheduler_0001.pth",
    }
    assert len(list((here / "killed").glob("events.out.tfevents.*"))) == 2  # one an attempt
    for name in ("model_0001.pth", "optimizer_0001.pth"):
        assert (here / "killed" / name).read_bytes() == (here / "whole" / name).read_bytes()

    assert main(["export", "killed", "bundle"]) == ExitCode.DONE
    assert sorted(path.name for path in (here / "bundle").iterdir()) == ["config.json", "model_0001_0.pth"]

    fsck = ["fsck", "runs/local/local", "--store", f"file://{here}/killed/.lead"]
    assert main(fsck) == ExitCode.DONE
    assert "2 checkpoints checked, 0 findings" in capsys.readouterr().out
    (here / "killed/model_0001.pth").write_bytes(b"spoiled")  # a link to the object itself
    assert main(fsck) == ExitCode.BAD_DATA
    assert "1 findings" in capsys.readouterr().out


def test_fsck_takes_a_logdir_also_of_several_seeds(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "recipe=toy", "logdir=many", "epochs=1", "seeds=[0,1]"]) == ExitCode.DONE
    for folder, count in (("many", 2), ("many/seed_1", 1)):
        capsys.readouterr()
        assert main(["fsck", folder]) == ExitCode.DONE
        assert f"{folder}: {count} checkpoints checked, 0 findings" in capsys.readouterr().out
    (here / "many/seed_1/model_0000.pth").write_bytes(b"spoiled")
    assert main(["fsck", "many"]) == ExitCode.BAD_DATA
    assert main(["fsck", "nothing"]) == ExitCode.BAD_CONFIG
    assert "or a logdir of lead train" in capsys.readouterr().err


def test_a_finished_run_that_is_started_again_says_so(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["train", "recipe=toy", "logdir=run"]
    assert main([*words, "epochs=1"]) == ExitCode.DONE
    assert "nothing is left to train" not in "".join(capfd.readouterr())
    before = (here / "run/model_0000.pth").read_bytes()
    assert main([*words, "epochs=1"]) == ExitCode.DONE
    assert "nothing is left to train: this run is finished" in "".join(capfd.readouterr())
    assert (here / "run/model_0000.pth").read_bytes() == before


def test_a_run_that_began_anew_shows_its_own_weights_however_far_the_old_one_was(here: Path) -> None:
    assert main(["train", "recipe=toy", "logdir=run", "epochs=3"]) == ExitCode.DONE
    assert main(["train", "recipe=toy", "logdir=run", "epochs=2", "lr=0.01", "resume=never"]) == ExitCode.DONE
    assert [path.name for path in (here / "run").glob("model_*.pth")] == ["model_0001.pth"]
    assert '"lr": 0.01' in (here / "run/config.json").read_text()


def test_a_run_of_which_there_are_only_weights_is_not_continued_from_epoch_0(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "leads").mkdir()
    for part in ("model", "optimizer", "scheduler", "scaler"):
        (here / f"leads/{part}_0015.pth").write_bytes(b"LEAD's")
    words = ["train", "preset=demo", "carla_root=.", "continue_failed_training=true", "load_file=leads/model_0015.pth"]
    for logdir in ("leads", "new"):
        assert main([*words, f"logdir={logdir}"]) == ExitCode.BAD_CONFIG
        assert "the run would begin again at epoch 0. To begin" in capsys.readouterr().err
    assert len(list((here / "leads").glob("*_0015.pth"))) == 4

    (here / "leads/.lead").mkdir()  # as in a folder of ours
    assert main([*words, "logdir=new"]) == ExitCode.BAD_CONFIG
    assert "To continue that run set logdir=leads; to begin" in capsys.readouterr().err


def weights(path: Path, bias: float) -> Path:
    model = ToyModel(0.0)
    torch.nn.init.constant_(model.get_parameter("layers.0.bias"), bias)
    torch.save(model.state_dict(), path)
    return path


def test_other_weights_are_not_left_out_in_silence_where_a_run_goes_on(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, other = weights(here / "first.pth", 0.0), weights(here / "other.pth", 1.0)
    moved = shutil.copy(first, here / "moved.pth")

    def train(load_file: object, *words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main(["train", "recipe=toy", "logdir=run", "epochs=2", f"load_file={load_file}", *words])
        return code, capsys.readouterr().err

    assert train(first)[0] == ExitCode.DONE
    for same in (first, moved, "run/model_0001.pth"):  # the last one as LEAD names what is continued
        code, said = train(same)
        assert code == ExitCode.DONE and "load_file is not read" not in said
    code, said = train(other)
    assert code == ExitCode.BAD_CONFIG and f"the run in logdir run began with {first}" in said
    first.unlink()
    code, said = train(other)
    assert code == ExitCode.DONE and "load_file is not read" in said
    assert train(other, "resume=never")[0] == ExitCode.DONE


def test_ctrl_c_ends_a_run_that_does_not_train_yet(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def builds_for_long(*_: object, **options: object) -> None:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the cache is still being built")

    monkeypatch.setattr(cli_train, "local_job", builds_for_long)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        assert main(["train", "recipe=toy", "logdir=run"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_says_what_comes_of_it(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stop = StopFlag()
    stop.listen()
    signal.raise_signal(signal.SIGINT)
    assert stop.raised and "press again to end at once" in capfd.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("logdir", ["file", "file/below"])
def test_a_logdir_that_cannot_be_is_one_sentence(here: Path, capsys: pytest.CaptureFixture[str], logdir: str) -> None:
    (here / "file").touch()
    assert main(["train", "recipe=toy", f"logdir={logdir}"]) == ExitCode.BAD_CONFIG
    said = capsys.readouterr().err.strip()
    assert said.startswith(f"error: logdir: {logdir} cannot be made a folder") and len(said.splitlines()) == 1


def test_a_mistake_is_one_sentence_and_its_exit_code(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "recipe=toy", "logdir=x", "learning_rate=1"]) == ExitCode.BAD_CONFIG
    sentence = capsys.readouterr().err.strip()
    assert len(sentence.splitlines()) == 1 and "learning_rate" in sentence
    assert main(["pod", "--job", "missing.json"]) == ExitCode.BAD_CONFIG
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_run_that_began_without_load_file_takes_none_later(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "recipe=toy", "logdir=run", "epochs=2"]
    assert main([*words]) == ExitCode.DONE
    kept = (here / "run/model_0001.pth").read_bytes()
    other = weights(here / "other.pth", 1.0)
    capsys.readouterr()
    assert main([*words, f"load_file={other}"]) == ExitCode.BAD_CONFIG
    said = capsys.readouterr().err
    assert "the run in logdir run began without load_file" in said and "leave load_file out to go on" in said
    assert (here / "run/model_0001.pth").read_bytes() == kept
    assert main([*words, "load_file=run/model_0001.pth"]) == ExitCode.DONE  # as LEAD names what is continued
    assert main([*words, f"load_file={other}", "resume=never"]) == ExitCode.DONE


def test_an_export_of_an_unfinished_run_says_so(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    at_once = "async_checkpoints=false"
    assert lead(here, "train", "recipe=toy", "logdir=run", "epochs=3", at_once, signal="KILL:15:0").returncode == -9
    done = lead(here, "export", "run", "bundle")
    assert done.returncode == ExitCode.DONE and "epoch 2 of 3; the run is not finished" in done.stderr
    assert main(["train", "recipe=toy", "logdir=run", "epochs=3"]) == ExitCode.DONE
    assert "not finished" not in lead(here, "export", "run", "whole").stderr


def test_a_stopped_run_says_how_it_goes_on(here: Path) -> None:
    words = ["train", "recipe=toy", "logdir=run", "epochs=2"]
    stopped = lead(here, *words, "resume=never", signal="TERM:4:0")
    assert stopped.returncode == ExitCode.STOPPED
    said = stopped.stderr.strip().splitlines()[-1]
    assert said.endswith("a checkpoint of it is committed; the same command without resume=never goes on from it")
    stopped = lead(here, *words, signal="TERM:4:0")
    assert stopped.stderr.strip().endswith("a checkpoint of it is committed; the same command goes on from it")
    assert lead(here, *words).returncode == ExitCode.DONE
