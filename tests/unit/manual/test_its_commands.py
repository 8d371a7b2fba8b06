"""Every command for this machine on the manual's own pages runs as it is written, page after page in one folder."""

import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from lead_testing import PROJECT_ROOT
from lead_testing.operator_process import wait_for

PAGES = ("first-run", "your-data", "your-recipe", "when-it-fails")
INSTALLS = "python3.11 -m venv"  # three gigabytes: `make demo` and the house's tests install the package
SERVES = ("lead ui outputs",)  # never ends


def commands(page: str) -> list[str]:
    """Returns the lines of a page's blocks of bash."""
    text = (PROJECT_ROOT / f"charts/manual/{page}.md").read_text()
    return [line for block in re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL) for line in block.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("manual")


def environ() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}


@pytest.mark.timeout(1200)
def test_they_run_as_written(folder: Path) -> None:
    done: set[str] = set()
    for page in PAGES:
        for line in commands(page):
            if line in done or line in SERVES or line.startswith(INSTALLS):
                continue
            ended = subprocess.run(line, shell=True, cwd=folder, env=environ(), capture_output=True, text=True)
            assert ended.returncode == 0, f"{page}: {line}\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}"
            done.add(line)
    assert len(done) > 8 and (folder / "outputs/first/model_0001.pth").is_file()
    shows_the_run(folder)


def answer_of(address: str) -> bytes:
    """Returns what a server answers, nothing while it does not."""
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            return bytes(answer.read())
    except urllib.error.URLError:
        return b""


def shows_the_run(folder: Path) -> None:
    (line,) = SERVES
    assert line in commands("first-run")
    with subprocess.Popen(line.split(), cwd=folder, env=environ(), stdout=subprocess.PIPE, text=True) as page:
        ends = threading.Timer(120, page.kill)
        ends.start()
        try:
            assert page.stdout is not None
            address = next(found[0] for out in page.stdout if (found := re.search(r"http://\S+", out)))
            assert b"first" in wait_for("the page", lambda: answer_of(address))  # which it names before it listens
        finally:
            ends.cancel()
            page.kill()
