"""`lead ui`: the page of this machine's runs, by a program of its own; this package never imports it."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from lead_trainer.errors import BadConfig, missing_extra

NEEDED = ("starlette", "uvicorn", "jinja2")


def show_page(folder: Path, host: str, port: int) -> NoReturn:
    """Becomes the program that serves the runs in a folder until it is stopped.

    Raises BadConfig where there is no such folder, or where the extra `ui` is not installed.
    """
    if not folder.is_dir():
        raise BadConfig(f"ui: there is no folder {folder}; name the logdir of a lead train, or a folder of logdirs")
    for module in NEEDED:
        if find_spec(module) is None:
            raise BadConfig(f"ui: {missing_extra(module, 'ui')}")
    command = [sys.executable, "-m", "lead_ui", str(folder), f"--host={host}", f"--port={port}"]
    os.execv(sys.executable, command)
