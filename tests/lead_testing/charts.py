"""The chart as helm renders it without a cluster, for tests that apply parts of it to an API server."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from lead_testing import PROJECT_ROOT
from lead_testing.local_cluster.binaries import ensure_programs
from lead_testing.local_cluster.errors import CannotRun
from lead_testing.local_cluster.home import Home

KUBERNETES = "1.34.4"  # without a cluster helm does not know its version


def helm_program() -> Path:
    """Returns helm, found on PATH or built once; skips the test where there is none."""
    if found := shutil.which("helm"):
        return Path(found)
    try:
        return ensure_programs(Home.from_environment(), ["helm"])["helm"]
    except CannotRun as reason:
        pytest.skip(f"helm is neither on PATH nor can it be built: {reason}")


def rendered(*folders: str, namespace: str = "lead-system", **values: Any) -> list[dict[str, Any]]:
    """Returns the objects of a release `lead` that stand below templates/ in `folders`; dots of keys are `__`."""
    argv = [str(helm_program()), "template", "lead", str(PROJECT_ROOT / "charts/lead"), "-n", namespace]
    chosen = [f"{key.replace('__', '.')}={value}" for key, value in values.items()]
    options = [word for each in chosen for word in ("--set-json", each)]
    done = subprocess.run(
        [*argv, "--kube-version", KUBERNETES, *options], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    of_folders = [
        text for text in done.stdout.split("\n---\n")
        if any(f"# Source: lead/templates/{folder}" in text for folder in folders)
    ]  # fmt: skip
    return [document for text in of_folders for document in yaml.safe_load_all(text) if document]
