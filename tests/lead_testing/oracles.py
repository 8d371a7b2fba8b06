"""The public evaluation kits as independent oracles, in an environment of their own, asked over JSON.

`nuscenes-devkit` needs numpy below 2 and `av2` declares torch and kornia, so neither may enter the project's
environment. Theirs lies below the cache folder, is made once from the pins here (about 10 s and 0.9 GB), and is named
by their digest.
Where no package index answers, the asking test is skipped and says so.
"""

import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lead_testing.local_cluster.home import Home

PINS = ("nuscenes-devkit==1.2.0", "numpy==1.26.4", "pandas==2.3.3", "pyarrow==20.0.0", "polars==1.35.2",
        "universal-pathlib==0.3.10", "rich==14.3.3", "shapely==2.0.7", "pyquaternion==0.9.9")  # fmt: skip
WITHOUT_DEPENDENCIES = ("av2==0.3.6",)  # its torch, kornia and numba serve parts that are not asked
INSTALL_SECONDS, ANSWER_SECONDS = 300, 120
_NO_NETWORK = ("failed to fetch", "error sending request", "dns error", "network")

# A question is Python source that reads `question` and sets `answer`; both are JSON.
_ASK = "import json, sys\nquestion = json.load(sys.stdin)\n{source}\njson.dump(answer, sys.stdout)\n"


def ask(source: str, question: Any) -> Any:
    """Runs `source` in the oracles' environment and returns its `answer`; fails the test with its error output."""
    done = subprocess.run(
        [str(oracle_python()), "-c", _ASK.format(source=source)],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        timeout=ANSWER_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"the oracle ended in {done.returncode}:\n{done.stderr[-4000:]}"
    return json.loads(done.stdout.splitlines()[-1])


@cache
def oracle_python() -> Path:
    """Returns the Python that has the kits, made when it is not there; skips the test where it cannot be made."""
    digest = hashlib.sha256("\n".join([*PINS, *WITHOUT_DEPENDENCIES, sys.version]).encode()).hexdigest()[:12]
    folder = Home.from_environment().root / "oracles" / digest
    python, ready = folder / "bin/python", folder / "ready"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{digest}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.is_file():
            shutil.rmtree(folder, ignore_errors=True)
            _make(folder, python)
            ready.touch()
    return python


def _make(folder: Path, python: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    if not uv.is_file():
        pytest.skip(f"the evaluation kits are not installed: {uv} is missing; run `make test` once")
    install = [str(uv), "pip", "install", "-q", "--python", str(python)]
    for command in (
        [str(uv), "venv", "-q", "--python", sys.executable, str(folder)],
        [*install, *PINS],
        [*install, "--no-deps", *WITHOUT_DEPENDENCIES],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip(f"the evaluation kits could not be installed within {INSTALL_SECONDS} s; is there a network?")
        if done.returncode and any(sign in done.stderr.lower() for sign in _NO_NETWORK):
            pytest.skip(f"the evaluation kits could not be fetched: {done.stderr[-500:]}")
        assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stderr[-4000:]}"
