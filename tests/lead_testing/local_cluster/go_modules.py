"""Fetches a Go module for the files in it, at the version that `tools/` pins and with the digest that go.sum holds."""

import json
from pathlib import Path

from lead_testing.local_cluster.binaries import SOURCES, find_go
from lead_testing.local_cluster.commands import read_output, run_download
from lead_testing.local_cluster.home import Home


def module_folder(home: Home, name: str, module: str) -> Path:
    """Returns the folder of `module` as `tools/<name>/go.mod` pins it; raises CannotRunHere without Go, StepFailed."""
    words = [find_go(), "mod", "download"]
    run_download([*words, module], home.root / "logs" / f"download-{name}.log", cwd=SOURCES / name)
    return Path(json.loads(read_output([*words, "-json", module], cwd=SOURCES / name))["Dir"])
