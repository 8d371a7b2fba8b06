"""`lead train` at a terminal: lines for people beside the bar, none of them JSON; where it is piped, JSON alone."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lead_testing.toy_jobs import toy_environment
from lead_testing.toy_runs import toy_recipe_installed
from lead_trainer.contract.installed import load_recipe

TRAIN = [sys.executable, "-m", "lead_trainer", "train", "recipe=toy", "logdir=run", "epochs=2"]
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def environment(folder: Path) -> dict[str, str]:
    with toy_recipe_installed(folder):
        return {**toy_environment(folder, folder / "unused"), "TERM": "xterm-256color", "COLUMNS": "200"}


def test_a_terminal_shows_no_json_and_ends_with_the_weights(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(TRAIN, cwd=tmp_path, env=environment(tmp_path), stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        drawn = b""
        while part := _read(ours):
            drawn += part
    os.close(ours)
    assert process.returncode == 0, drawn
    lines = _ESCAPES.sub("", drawn.decode()).replace("\r", "\n").split("\n")
    assert not [line for line in lines if line.lstrip().startswith("{")]
    assert any(re.fullmatch(r"\d\d:\d\d:\d\d \[info\] epoch done epoch=1 of=2 .*loss=.*", line) for line in lines)
    *_, checkpoints, curves, last = [line for line in lines if line]
    assert re.fullmatch(r"checkpoints: after epochs 1, 2, \d+ MB; check them: lead fsck run", checkpoints)
    assert curves == "curves: lead tensorboard run; in a line: lead runs run"
    assert last == "weights: run/model_0001.pth (epoch 2 of 2); train on: the same command with more epochs"
    assert (tmp_path / "run/model_0001.pth").is_file()


def _read(end: int) -> bytes:
    try:
        return os.read(end, 65536)
    except OSError:  # EIO: the last process that had the terminal has ended
        return b""


def test_a_pipe_gets_json_lines_and_the_weights_on_standard_output(tmp_path: Path) -> None:
    done = subprocess.run(TRAIN, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    events = [line["event"] for line in lines]
    assert all(line["run"] == "run" and line["rank"] == 0 for line in lines)
    assert all(line["attempt"] == 1 for line in lines if line["event"] in ("training", "epoch done"))
    assert events.count("epoch done") == 2 and "timestamp" in json.loads(done.stderr.splitlines()[0])
    assert done.stdout.startswith("weights: run/model_0001.pth (epoch 2 of 2)")


@pytest.mark.parametrize(
    ("recipe", "keys", "command"),
    [
        ("lead", {}, "posttrain: lead train load_file=out/model_0001.pth use_planning_decoder=true logdir=…"),
        ("lead", {"use_planning_decoder": True}, "evaluate with LEAD: lead export out FOLDER"),
        ("distill", {"model": "baseline", "data_root": "clips"}, "evaluate: lead evaluate out/model_0001.pth"),
    ],
)
def test_each_recipe_names_what_comes_next(recipe: str, keys: dict[str, object], command: str) -> None:
    found = load_recipe(recipe)
    assert found.reports.next_command is not None
    chosen = {"recipe": recipe, "preset": ""}
    assert found.reports.next_command(found.config(keys), Path("out/model_0001.pth"), Path("out"), chosen) == command
