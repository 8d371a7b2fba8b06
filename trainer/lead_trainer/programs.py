"""Programs beside this one that a command asks: kubectl, lead-operator."""

import os
import shutil
import sys
from pathlib import Path

from lead_trainer.errors import BadConfig


def program(name: str, remedy: str) -> str:
    """Returns the path of a program, on the search path or beside this Python; raises BadConfig with the remedy."""
    found = shutil.which(name) or shutil.which(name, path=os.fspath(Path(sys.executable).parent))
    if found is None:
        raise BadConfig(f"the program {name} is not installed: {remedy}")
    return found
