"""What several test rings share: makers, data generators, servers, the local cluster."""

from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parents[2]


def shared_dir() -> Path:
    """Returns the folder of reference values beside the checkout; skips the calling test where it is absent."""
    shared = PROJECT_ROOT.parent / "shared"
    if not shared.is_dir():
        import pytest  # here, because the local cluster starts before any package is installed

        pytest.skip(f"reference values are not at {shared}: they are not part of the repository")
    return shared
