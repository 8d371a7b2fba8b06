"""`lead ui`: the page of this machine's runs, by a program of its own; this package never imports it."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from lead_protocol.exit_codes import ExitCode
from lead_trainer.errors import BadConfig, missing_extra

NEEDED = ("starlette", "uvicorn", "jinja2")


def show_page(folder: Path, host: str, port: int) -> int:
    """Serves the runs in a folder until it is stopped; returns the exit code.

    Raises BadConfig where there is no such folder, or where the extra `ui` is not installed.
    """
    if not folder.is_dir():
        raise BadConfig(f"ui: there is no folder {folder}; name the logdir of a lead train, or a folder of logdirs")
    for module in NEEDED:
        if find_spec(module) is None:
            raise BadConfig(f"ui: {missing_extra(module, 'ui')}")
    command = [sys.executable, "-m", "lead_ui", str(folder), f"--host={host}", f"--port={port}"]
    try:
        return subprocess.run(command).returncode
    except KeyboardInterrupt:
        return ExitCode.DONE
