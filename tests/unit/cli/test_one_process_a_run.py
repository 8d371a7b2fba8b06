"""A run on this machine is trained by one process at a time, and its list of files removes none of anybody else's."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lead_protocol.exit_codes import ExitCode
from lead_protocol.store.folder import FolderStore
from lead_testing.small_runs import arguments_of, write_data
from lead_testing.toy_runs import toy_recipe_installed
from lead_trainer.cli import main
from lead_trainer.errors import BadConfig
from lead_trainer.local.logdir import hold_lock
from lead_trainer.local.shown_files import ShownFiles

HOLDS = """
import sys
from pathlib import Path
from lead_trainer.local.logdir import hold_lock
hold_lock(Path(sys.argv[1]), "train")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_while_the_first_lives_and_not_after(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDS, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None and first.stdout.readline() == "held\n"
        with pytest.raises(BadConfig, match=r"another process trains the run in .*; wait for its end"):
            hold_lock(tmp_path / "run", "train")
        hold_lock(tmp_path / "run", "train-policy-s1")  # a run whose files have names of their own
        first.kill()
    hold_lock(tmp_path / "run", "train")
    hold_lock(tmp_path / "run", "train")  # this process holds it


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[None]:
    with toy_recipe_installed(tmp_path):
        yield


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and ".lock" not in path.name}


def test_a_run_of_another_seed_or_recipe_replaces_no_files(
    tmp_path: Path, toy: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second run in a folder would show its weights under the names of the first one's."""
    run = tmp_path / "run"
    assert main(["train", "recipe=toy", f"logdir={run}", "samples=16"]) == ExitCode.DONE
    write_data("world", tmp_path / "tree")
    before = contents(run)
    for words, whose in (
        (["recipe=toy", f"logdir={run}", "samples=16", "seed=7"], "recipe toy with seed 7"),
        (["recipe=toy", f"logdir={run}", "samples=16", "seed=7", "resume=never"], "recipe toy with seed 7"),
        (arguments_of("world", tmp_path / "tree", run), "recipe world with seed 42"),
    ):
        capsys.readouterr()
        assert main(["train", *words]) == ExitCode.BAD_CONFIG
        held = f"error: logdir: {run} holds a run of recipe toy with seed 0 (epoch 2)"
        assert f"{held}, whose files this run of {whose}" in capsys.readouterr().err
        assert contents(run) == before
    assert main(["train", "recipe=toy", f"logdir={run}", "samples=16", "epochs=3"]) == ExitCode.DONE


@pytest.mark.parametrize(
    "text", ["{", "", "42", '"abc"', '["../victim"]', '["a/b"]', '[".hidden"]', "[1]", "[null]", '{"a": 1}']
)
def test_a_crafted_list_removes_nothing_and_a_corrupt_one_ends_no_run(tmp_path: Path, text: str) -> None:
    (tmp_path / "victim").write_text("mine")
    logdir = tmp_path / "run"
    store = FolderStore(logdir / ".lead")
    store.put("shown.json", text.encode())
    store.put("model", b"weights")
    shown = ShownFiles(logdir, logdir / ".lead", store, "shown.json")
    assert shown.listed() == set()
    shown.show({"model.pth": "model"}, stale=["../victim", "a/b", "victim"])
    assert (tmp_path / "victim").read_text() == "mine"
    assert json.loads(store.get("shown.json", max_bytes=1000)) == ["model.pth"]


def test_fsck_finds_what_was_quarantined(tmp_path: Path, toy: None, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "recipe=toy", f"logdir={tmp_path / 'run'}"]
    assert main([*words, "epochs=2"]) == ExitCode.DONE
    manifest = max((tmp_path / "run/.lead").rglob("manifest/*.json"))
    manifest.write_bytes(b"")
    assert main([*words, "epochs=3"]) == ExitCode.DONE
    capsys.readouterr()
    assert main(["fsck", str(tmp_path / "run")]) == ExitCode.BAD_DATA
    assert "quarantined" in capsys.readouterr().out
