"""Decides which cluster `make demo` and the tests use: the current one, kind, or the local one."""

from collections.abc import Mapping
from typing import Literal

from lead_testing.local_cluster.commands import try_output
from lead_testing.local_cluster.errors import CannotRun

ClusterKind = Literal["current", "kind", "local"]


def decide_cluster(
    environment: Mapping[str, str], *, started: Literal["kind", "local"] | None, docker_answers: bool
) -> ClusterKind:
    """LEAD_CLUSTER=current|kind|local says it; unset means the one started here, else kind by Docker, else local.

    What was started comes before Docker, which may have come or gone since: only so is it found and taken down again.
    """
    wanted = environment.get("LEAD_CLUSTER") or started or ("kind" if docker_answers else "local")
    if wanted == "kind" and not docker_answers:
        told, instead = "LEAD_CLUSTER is kind", "unset it"
        if wanted == started:
            told, instead = "kind was started here", "remove cluster/kubeconfig below LEAD_HOME (~/.cache/lead)"
        raise CannotRun(f"{told}, but no Docker engine answers `docker info`: start Docker, or {instead}.")
    match wanted:
        case "current" | "kind" | "local":
            return wanted
    raise CannotRun(f"LEAD_CLUSTER is {wanted!r}, expected current, kind or local: change it or unset it.")


def docker_answers() -> bool:
    """Asks the Docker engine whether it is there; one that hangs is not."""
    return bool(try_output(["docker", "info"]))
