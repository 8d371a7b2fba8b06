"""The cluster by kind, where a Docker engine answers: one node named `lead`. Called by `ensure_up` and `delete`."""

from pathlib import Path

from lead_testing.local_cluster.binaries import ensure_programs
from lead_testing.local_cluster.commands import read_output, run_logged
from lead_testing.local_cluster.home import Home
from lead_testing.local_cluster.locks import exclusive
from lead_testing.local_cluster.progress import step

NAME = "lead"


def up(home: Home) -> Path:
    """Creates the cluster where it is not there; returns its kubeconfig."""
    programs = ensure_programs(home, ("kind", "kubectl", "helm"))
    kubeconfig = home.cluster / "kubeconfig"
    with exclusive(home.locks / "cluster", "starting or stopping the cluster"):
        if NAME not in read_output([programs["kind"], "get", "clusters"]).split():
            with step("creating a cluster with kind (it pulls the node's image the first time)"):
                create = [str(programs["kind"]), "create", "cluster", "--name", NAME, "--wait", "180s"]
                kubeconfig.parent.mkdir(parents=True, exist_ok=True)
                run_logged([*create, "--kubeconfig", kubeconfig], home.root / "logs" / "kind.log")
        if not kubeconfig.exists():
            kubeconfig.parent.mkdir(parents=True, exist_ok=True)
            read_output([programs["kind"], "export", "kubeconfig", "--name", NAME, "--kubeconfig", kubeconfig])
    return kubeconfig


def was_started(home: Home) -> bool:
    """Tells whether `up` left a kubeconfig; asks no engine, which may be down."""
    return (home.cluster / "kubeconfig").exists()


def load_image(home: Home, reference: str) -> None:
    """Gives an image of the Docker engine to the node; kind skips what the node has."""
    kind = ensure_programs(home, ("kind",))["kind"]
    run_logged([kind, "load", "docker-image", reference, "--name", NAME], home.root / "logs" / "kind.log")


def down(home: Home) -> None:
    """Deletes the cluster."""
    kind = ensure_programs(home, ("kind",))["kind"]
    with exclusive(home.locks / "cluster", "starting or stopping the cluster"):
        read_output([kind, "delete", "cluster", "--name", NAME, "--kubeconfig", home.cluster / "kubeconfig"])
        (home.cluster / "kubeconfig").unlink(missing_ok=True)
