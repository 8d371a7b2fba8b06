"""`lead tensorboard LOGDIR`: the curves of a run that may still be written, or a sentence that says what is missing."""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from lead_protocol.exit_codes import ExitCode
from lead_trainer.cli import main
from lead_trainer.commands import tensorboard as cli_tensorboard
from lead_trainer.report.tensorboard import EventFile


def test_an_unfinished_logdir_is_shown_up_to_its_last_whole_point(tmp_path: Path) -> None:
    logdir = tmp_path / "run"
    events = EventFile(logdir, None, "", attempt=1, first_step=0, on=True)
    for step in range(1, 6):
        events.scalars({"loss": 1.0 / step}, step)
    events.close()
    (file,) = logdir.glob("events.out.tfevents.*")
    file.write_bytes(file.read_bytes()[:-5])  # as a run that is killed, or a full disk, leaves it
    words = [sys.executable, "-m", "lead_trainer", "tensorboard", str(logdir), "--port", "0", "--every", "1"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = _address(process)
            assert _points(f"{address}data/plugin/scalars/scalars?run=.&tag=loss") == [1, 2, 3, 4]
        finally:
            process.send_signal(signal.SIGINT)
        process.stderr.read()  # type: ignore[union-attr]
    assert process.returncode == ExitCode.DONE


def _address(process: subprocess.Popen[str]) -> str:
    for line in process.stderr or ():
        if found := re.search(r"http://127\.0\.0\.1:\d+/", line):
            return found[0]
    raise AssertionError("TensorBoard ended without an address")


def _points(url: str) -> list[int]:
    """Returns the steps of the curve, once TensorBoard has read the file."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return [step for _, step, _ in json.load(answer)]
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"{url} shows no curve")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ([], "there is no folder"),
        (["shown/"], "holds no event file and no run; name the logdir of a lead train"),
        (["shown/caches/local/digest/MANIFEST.json"], "holds a cache, which has no curves; name the logdir"),
        (["shown/cache/caches/local/digest/MANIFEST.json"], "holds a cache, which has no curves; name the logdir"),
        (["shown/runs/team/uid/file"], "is a store: write lead tensorboard --store file://"),
    ],
)
def test_a_folder_that_can_have_no_curves_is_named_for_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], made: list[str], said: str
) -> None:
    for name in made:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()
    assert main(["tensorboard", str(tmp_path / "shown")]) == ExitCode.BAD_CONFIG
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["run"], "run"),
        (["--logdir", "run"], "run"),
        (["--logdir=run"], "run"),
        (["--store", "file:///{here}/store", "-n", "team"], "/store/runs/team/"),
    ],
)
def test_a_run_or_namespace_without_curves_yet_is_served_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], where: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli_tensorboard, "_until_stopped", lambda *given: ExitCode.DONE)
    (tmp_path / "run/.lead").mkdir(parents=True)
    (tmp_path / "store").mkdir()
    assert main(["tensorboard", *(word.format(here=tmp_path) for word in words)]) == ExitCode.DONE
    assert f"{where} holds no event file yet; curves appear when" in capsys.readouterr().err
