"""A cluster for the demo and the tests, by the standard library alone: it runs before any venv exists.

What others call: `ensure_up`, `build_images`, `delete`. Which cluster they mean, `which_cluster` decides.
"""

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from lead_testing.local_cluster import addresses, cluster, current, images, kind
from lead_testing.local_cluster.base_image import BASE_IMAGE_S
from lead_testing.local_cluster.binaries import CLUSTER_PROGRAMS, expected_builds
from lead_testing.local_cluster.errors import CannotRun
from lead_testing.local_cluster.home import Home
from lead_testing.local_cluster.progress import say
from lead_testing.local_cluster.which_cluster import ClusterKind, decide_cluster, docker_answers

__all__ = ["CannotRun", "Cluster", "Home", "build_images", "cluster_for_tests", "delete", "ensure_up", "expected_work",
           "print_status"]  # fmt: skip


@dataclass(frozen=True)
class Cluster:
    """A cluster that answers: how to reach it, where kubectl and helm lie, and where its images come from."""

    kind: ClusterKind
    kubeconfig: Path
    bin_dir: Path
    registry: str | None  # where images are pushed; None where they are loaded into the node

    def variables(self, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Returns what kubectl and helm need beside `environment` to reach this cluster, behind a proxy as well.

        A cluster of the user's own may be behind that proxy, and kind listens on loopback, which no proxy is asked for.
        """
        own = {"KUBECONFIG": str(self.kubeconfig)}
        if self.kind == "local" and (environment.get("HTTPS_PROXY") or environment.get("https_proxy")):
            spared = environment.get("NO_PROXY") or environment.get("no_proxy")
            own["NO_PROXY"] = f"{spared},{addresses.NODE_ADDRESS}" if spared else addresses.NODE_ADDRESS
        return own

    def environment(self) -> dict[str, str]:
        """Returns this process's environment, in which kubectl and helm speak to this cluster."""
        return {**os.environ, **self.variables()}

    def export_line(self) -> str:
        """Returns the line by which a shell's kubectl and helm speak to this cluster."""
        words = [f"{name}={shlex.quote(value)}" for name, value in self.variables().items()]
        return f"export {' '.join(words)} PATH={shlex.quote(str(self.bin_dir))}:$PATH"


def ensure_up(home: Home | None = None, *, for_images: bool = False) -> Cluster:
    """Returns a running cluster, starting the local one or kind where needed; seconds where it runs already.

    `for_images`: images are built next. The first time their layers are made meanwhile, which waits for the network.
    """
    home = home or Home.from_environment()
    match _decide(home):
        case "current":
            return Cluster("current", current.find_kubeconfig(home), home.bin, os.environ.get("LEAD_REGISTRY"))
        case "kind":
            return Cluster("kind", kind.up(home), home.bin, None)
        case "local":
            first = for_images and not home.image_storage.exists() and not docker_answers()
            layers = partial(images.build_layers, home, registry=addresses.REGISTRY)
            cluster.up(home, home.cluster, layers if first else None)
            return Cluster("local", home.cluster / "kubeconfig", home.bin, addresses.REGISTRY)


def expected_work(home: Home | None = None) -> dict[str, float]:
    """Returns the slow steps before a cluster with our images is there and the seconds they take on two cores."""
    home = home or Home.from_environment()
    programs = expected_builds(home, (*CLUSTER_PROGRAMS, "minio")) if _decide(home) == "local" else {}
    first = not home.image_storage.exists()
    built = {f"image {name}": seconds if first else 5 for name, seconds in images.FIRST_BUILD_S.items()}
    return {**programs, **({"base image": BASE_IMAGE_S} if first else {}), **built}


def build_images(target: Cluster | None = None, home: Home | None = None) -> dict[str, str]:
    """Builds what has changed and gives it to the cluster; returns name → reference: operator, trainer, minio."""
    home = home or Home.from_environment()
    target = target or ensure_up(home)
    if target.kind == "kind":
        built = images.build_by_docker(home, prefix="lead.local")
        for reference in built.values():
            kind.load_image(home, reference)
        return built
    if target.registry is None:
        raise CannotRun(
            "LEAD_CLUSTER=current needs a registry that the cluster pulls from: set LEAD_REGISTRY, as in "
            "LEAD_REGISTRY=registry.example.org/me, and log in to it with podman or docker."
        )
    if docker_answers():
        return images.build_by_docker(home, prefix=target.registry, push=True)
    return images.build_by_buildah(home, registry=target.registry, plain_http=target.kind == "local")


def delete(home: Home | None = None) -> None:
    """Takes the cluster down, without a trace but the caches; a cluster of the user's own is left alone."""
    home = home or Home.from_environment()
    match _decide(home):
        case "current":
            say("LEAD_CLUSTER=current: nothing was started here, so nothing is stopped")
        case "kind":
            kind.down(home)
        case "local":
            cluster.down(home, home.cluster)
            left = cluster.remnants(home.cluster)
            if left:
                raise CannotRun(
                    f"The cluster is stopped, but these are left: {', '.join(left)}; run the command again."
                )
            say(f"nothing is left but the caches in {home.root}")


@contextmanager
def cluster_for_tests(home: Home | None = None) -> Iterator[Cluster]:
    """Yields the cluster that is up, which stays up, or one for the tests alone, which ends with them."""
    home = home or Home.from_environment()
    was_up = _is_up(home)
    try:
        yield ensure_up(home)
    finally:
        if not was_up:
            delete(home)


def print_status(home: Home | None = None) -> bool:
    """Prints each part's health and log; tells whether all is well."""
    home = home or Home.from_environment()
    if (chosen := _decide(home)) != "local":
        print(f"The cluster is {chosen}; ask it with kubectl.")
        return True
    parts = cluster.status(home, home.cluster)
    if not parts:
        print("The local cluster is down; `make cluster-up` starts it.")
    for part in parts:
        print(f"{part.name:<24} {part.state:<28} {part.log}")
    return bool(parts) and all(part.state == "healthy" for part in parts)


def _is_up(home: Home) -> bool:
    match _decide(home):
        case "current":
            return True
        case "kind":
            return kind.was_started(home)
        case "local":
            return any(part.state == "healthy" for part in cluster.status(home, home.cluster))


def _decide(home: Home) -> ClusterKind:
    return decide_cluster(os.environ, started=_started(home), docker_answers=docker_answers())


def _started(home: Home) -> Literal["kind", "local"] | None:
    if cluster.was_started(home.cluster):
        return "local"
    return "kind" if kind.was_started(home) else None
