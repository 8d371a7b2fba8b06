"""Decides which cluster `make demo` and the tests use: the current one, kind, or the local one."""

import shutil
import subprocess
from collections.abc import Mapping
from typing import Literal

from lead_testing.local_cluster.errors import CannotRun

ClusterKind = Literal["current", "kind", "local"]


def decide_cluster(environment: Mapping[str, str], *, docker_answers: bool) -> ClusterKind:
    """LEAD_CLUSTER=current|kind|local says it; unset means kind where a Docker engine answers, else local."""
    wanted = environment.get("LEAD_CLUSTER", "")
    if wanted == "":
        return "kind" if docker_answers else "local"
    if wanted == "kind" and not docker_answers:
        raise CannotRun("LEAD_CLUSTER is kind, but no Docker engine answers `docker info`: start Docker or unset it.")
    match wanted:
        case "current" | "kind" | "local":
            return wanted
    raise CannotRun(f"LEAD_CLUSTER is {wanted!r}, expected current, kind or local: change it or unset it.")


def docker_answers() -> bool:
    """Asks the Docker engine whether it is there."""
    if not shutil.which("docker"):
        return False
    probe = subprocess.run(["docker", "info"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    return probe.returncode == 0
