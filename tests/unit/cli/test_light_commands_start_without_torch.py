"""Commands that compute nothing with torch do not wait for it."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from lead_trainer.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass  # --help
print("torch" in sys.modules)
"""


@pytest.mark.parametrize("words", [["example-data", "tree", "--routes", "1", "--frames", "1"], ["--help"]])
def test_a_light_command_loads_no_torch(tmp_path: Path, words: list[str]) -> None:
    command = [sys.executable, "-c", PROGRAM, *words]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "False"
