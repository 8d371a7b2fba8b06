"""What several test rings share: makers, data generators, servers, the local cluster."""

import os
from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parents[2]


REFERENCE = Path(os.environ.get("LEAD_REFERENCE") or PROJECT_ROOT.parent / "shared")  # values of other programs


def shared_dir() -> Path:
    """Returns the folder of reference values; skips the calling test or module where it is absent."""
    if not REFERENCE.is_dir():
        import pytest  # here, because the local cluster starts before any package is installed

        reason = f"reference values are not at {REFERENCE} (LEAD_REFERENCE): they are not part of the repository"
        pytest.skip(reason, allow_module_level=True)
    return REFERENCE
