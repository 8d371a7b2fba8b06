"""Which version of the code trains: every checkpoint names it.

An image sets LEAD_GIT_REVISION; in a checkout git is asked.
"""

import os
import subprocess
from functools import cache
from pathlib import Path

VARIABLE = "LEAD_GIT_REVISION"
_TIMEOUT_S = 5.0


@cache
def git_revision() -> str:
    """Returns the commit, with `-dirty` where files differ from it; empty where nobody knows."""
    revision = os.environ.get(VARIABLE, "")
    if revision:
        return revision
    folder = Path(__file__).resolve().parent
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"],
            cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()
