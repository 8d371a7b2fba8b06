"""`lead completion`: a script that a real shell takes, and that completes commands, options and closed lists."""

import shutil
import subprocess
from pathlib import Path

import pytest

from lead_protocol.exit_codes import ExitCode
from lead_trainer.cli import main
from lead_trainer.command_line import FUNCTIONS

ASK = (
    'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; _shtab_lead; echo "${COMPREPLY[*]}"'
)


def script(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", shell]) == ExitCode.DONE
    path = folder / f"lead.{shell}"
    path.write_text(capsys.readouterr().out)
    return path


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["lead", "comp"], {"compare-perf", "completion"}),
        (["lead", "tr"], {"train"}),
        (["lead", "export", "--b"], {"--best"}),
        (["lead", "runs", "--name"], {"--namespace"}),
        (["lead", "completion", "z"], {"zsh"}),
        (["lead", "inspect", ""], {"batch", "nan", "range"}),
    ],
    ids=lambda words: " ".join(sorted(words)),
)
def test_bash_completes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], typed: list[str], offered: set[str]
) -> None:
    path = script("bash", tmp_path, capsys)
    done = subprocess.run(["bash", "-c", ASK, "bash", str(path), *typed], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert offered <= set(done.stdout.split())
    assert typed[-1] == "" or all(each.startswith(typed[-1]) for each in done.stdout.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_every_shell_has_a_script_with_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shell: str
) -> None:
    path = script(shell, tmp_path, capsys)
    assert all(command in path.read_text() for command in FUNCTIONS)
    if shell != "tcsh" and (program := shutil.which(shell)):  # tcsh has no check of a script alone
        assert subprocess.run([program, "-n", str(path)], capture_output=True, timeout=60).returncode == 0
